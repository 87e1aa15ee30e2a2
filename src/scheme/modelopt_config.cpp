// SPDX-License-Identifier: Apache-2.0
#include "scheme/modelopt_config.hpp"

#include <algorithm>

#include "scheme/module_match.hpp"

namespace fewbit {
namespace {

std::string upper_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

std::string string_of(const Json& block, std::string_view key) {
  const Json* value = block.find(key);
  const std::string* text = value != nullptr ? value->as_string() : nullptr;
  return text != nullptr ? *text : std::string();
}

std::vector<std::string> strings_of(const Json& block, std::string_view key) {
  std::vector<std::string> out;
  const Json* value = block.find(key);
  const Json::Array* array = value != nullptr ? value->as_array() : nullptr;
  if (array == nullptr) return out;
  for (const Json& item : *array) {
    if (const std::string* text = item.as_string()) out.push_back(*text);
  }
  return out;
}

// Empty when the block says nothing but 16.
std::string other_group_size(const Json& block) {
  std::vector<const Json*> holders = {&block};
  const Json* groups = block.find("config_groups");
  if (groups != nullptr && groups->as_object() != nullptr) {
    for (const auto& [name, group] : *groups->as_object()) {
      const Json* weights = group.is_object() ? group.find("weights") : nullptr;
      if (weights != nullptr && weights->is_object()) holders.push_back(weights);
    }
  }
  for (const Json* holder : holders) {
    const Json* size = holder->find("group_size");
    if (size != nullptr && size->as_int64() != 16) return size->dump();
  }
  return "";
}

}  // namespace

bool is_nvfp4_algorithm(const std::string& algorithm) {
  return algorithm == "NVFP4" || algorithm.starts_with("NVFP4_") || algorithm == "W4A16_NVFP4";
}

bool ModeloptConfig::operator==(const ModeloptConfig& other) const {
  const auto sorted = [](std::vector<std::string> list) {
    std::sort(list.begin(), list.end());
    return list;
  };
  return algorithm == other.algorithm && sorted(exclude) == sorted(other.exclude);
}

std::optional<ModeloptConfig> read_modelopt_config(const Declaration& declaration) {
  const Json& block = *declaration.block;
  const bool nvfp4_experts = !string_of(block, "moe_quant_algo").empty();
  if (declaration.producer != Producer::modelopt && !nvfp4_experts) return std::nullopt;
  ModeloptConfig config;
  config.where = declaration.where;
  config.algorithm = upper_ascii(string_of(block, "quant_algo"));
  config.exclude = strings_of(block, "exclude_modules");
  if (config.exclude.empty()) config.exclude = strings_of(block, "ignore");
  config.other_group_size = other_group_size(block);
  const Json* table = block.find("quantized_layers");
  if (table != nullptr && table->as_object() != nullptr) {
    config.quantized_layers.emplace();
    for (const auto& [name, entry] : *table->as_object()) config.quantized_layers->push_back(name);
    std::sort(config.quantized_layers->begin(), config.quantized_layers->end());
  }
  return config;
}

bool modelopt_expects(const ModeloptConfig& config, const std::string& module) {
  if (config.quantized_layers) {
    // A listed parent stands for its children.
    for (std::string name = module; !name.empty();) {
      if (std::binary_search(config.quantized_layers->begin(), config.quantized_layers->end(),
                             name)) {
        return true;
      }
      const std::size_t dot = name.rfind('.');
      name.resize(dot == std::string::npos ? 0 : dot);
    }
    return false;
  }
  return modelopt_exclusion(module, config.exclude).empty();
}

}  // namespace fewbit
