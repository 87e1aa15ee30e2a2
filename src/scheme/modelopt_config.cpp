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

}  // namespace

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
