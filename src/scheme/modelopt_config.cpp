// SPDX-License-Identifier: Apache-2.0
#include "scheme/modelopt_config.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "checkpoint/json_text.hpp"
#include "scheme/config_word.hpp"
#include "scheme/fused_names.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

std::string upper_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
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

std::vector<std::string> group_sizes_of(const Json& block) {
  std::vector<const Json*> holders = {&block};
  const Json* groups = block.find("config_groups");
  if (groups != nullptr && groups->as_object() != nullptr) {
    for (const auto& [name, group] : *groups->as_object()) {
      const Json* weights = group.is_object() ? group.find("weights") : nullptr;
      if (weights != nullptr && weights->is_object()) holders.push_back(weights);
    }
  }
  std::vector<std::string> sizes;
  for (const Json* holder : holders) {
    for (const std::string_view key : {"group_size", "awq_block_size"}) {
      const Json* size = holder->find(key);
      if (size == nullptr) continue;
      // Others mean nothing, and are findings of their own.
      const auto number = size->as_int64();
      const bool usable = number && (*number >= 1 || *number == -1);
      if (usable || size->is_null()) sizes.push_back(json_text(*size));
    }
  }
  return sizes;
}

std::optional<std::int64_t> group_size_of(const Json& entry) {
  for (const std::string_view key : {"group_size", "awq_block_size"}) {
    const Json* size = entry.find(key);
    const auto number = size != nullptr ? size->as_int64() : std::nullopt;
    if (number && *number >= 1) return number;
  }
  return std::nullopt;
}

bool groups_differ(const Json& block) {
  const Json* groups = block.find("config_groups");
  const Json::Object* members = groups != nullptr ? groups->as_object() : nullptr;
  if (members == nullptr) return false;
  if (members->size() > 1) return true;
  return std::any_of(members->begin(), members->end(), [](const auto& one) {
    const std::vector<std::string> targets = strings_of(one.second, "targets");
    return std::any_of(targets.begin(), targets.end(),
                       [](const std::string& target) { return target != "Linear"; });
  });
}

std::string said_in(const Json& block) {
  const Json* algorithm = block.find("quant_algo");
  return algorithm != nullptr ? value_text(*algorithm) : std::string();
}

std::optional<std::vector<ModeloptConfig::Layer>> layers_of(const Json& block) {
  const Json* table = block.find("quantized_layers");
  if (table == nullptr || table->as_object() == nullptr) return std::nullopt;
  std::vector<ModeloptConfig::Layer> layers;
  for (const auto& [name, entry] : *table->as_object()) {
    layers.push_back({name, std::string(without_wrapper_prefix(name)),
                      upper_ascii(word_at(entry, "quant_algo")), said_in(entry),
                      group_size_of(entry)});
  }
  std::sort(layers.begin(), layers.end(),
            [](const auto& a, const auto& b) { return a.inner < b.inner; });
  return layers;
}

using Layers = std::vector<ModeloptConfig::Layer>;

const ModeloptConfig::Layer* find_layer(const Layers& layers, const std::string& inner) {
  const auto at = std::lower_bound(
      layers.begin(), layers.end(), inner,
      [](const ModeloptConfig::Layer& layer, const std::string& key) { return layer.inner < key; });
  return at != layers.end() && at->inner == inner ? &*at : nullptr;
}

// Exporters write the names of the file, or of the model in memory, or of an engine.
const ModeloptConfig::Layer* itself_or_fused(const Layers& layers, const std::string& name) {
  for (const std::string& spelling : {name, other_spelling(name)}) {
    if (spelling.empty()) continue;
    if (const ModeloptConfig::Layer* layer = find_layer(layers, spelling)) return layer;
    for (const std::string& fused : fused_names_of(last_component(spelling))) {
      const auto* const layer = find_layer(layers, with_last_component(spelling, fused));
      if (layer != nullptr) return layer;
    }
  }
  return nullptr;
}

const ModeloptConfig::Layer* all_parts(const Layers& layers, const std::string& name) {
  for (const std::string& spelling : {name, other_spelling(name)}) {
    const ModeloptConfig::Layer* first = nullptr;
    bool same = true;
    for (const std::string& part : fused_parts(last_component(spelling))) {
      const auto* const layer = find_layer(layers, with_last_component(spelling, part));
      if (first == nullptr) first = layer;
      same = same && layer != nullptr && layer->algorithm == first->algorithm;
    }
    if (same && first != nullptr) return first;
  }
  return nullptr;
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
  ModeloptConfig config;
  config.moe_algorithm = upper_ascii(word_at(block, "moe_quant_algo"));
  const bool own = declaration.producer == Producer::modelopt;
  if (!own && config.moe_algorithm.empty()) return std::nullopt;
  config.where = declaration.where;
  config.algorithm = upper_ascii(word_at(block, "quant_algo"));
  config.said = said_in(block);
  config.odd = is_odd_word(block.find("quant_algo"));
  std::unordered_set<std::string> known;
  for (const std::string_view key : {"exclude_modules", "ignore", "modules_to_not_convert",
                                     "ignored_layers", "exclude", "llm_int8_skip_modules"}) {
    for (std::string& entry : strings_of(block, key)) {
      if (known.insert(entry).second) config.exclude.push_back(std::move(entry));
    }
  }
  config.group_sizes = group_sizes_of(block);
  config.quantized_layers = layers_of(block);
  config.groups_differ = groups_differ(block);
  return config;
}

std::optional<std::int64_t> group_size_number(const std::string& text) {
  std::int64_t size = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), size);
  return end.ec == std::errc{} ? std::optional(size) : std::nullopt;
}

const ModeloptConfig::Layer* modelopt_layer(const ModeloptConfig& config,
                                            const std::string& module) {
  if (!config.quantized_layers) return nullptr;
  const auto& layers = *config.quantized_layers;
  const std::string name(without_wrapper_prefix(module));
  if (const ModeloptConfig::Layer* layer = itself_or_fused(layers, name)) return layer;
  if (const ModeloptConfig::Layer* layer = all_parts(layers, name)) return layer;
  // A listed parent stands for its children.
  for (std::size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
       dot = name.rfind('.', dot - 1)) {
    if (const ModeloptConfig::Layer* layer = find_layer(layers, name.substr(0, dot))) return layer;
  }
  return nullptr;
}

bool modelopt_name_exists(std::string_view name,
                          const std::function<bool(std::string_view)>& exists) {
  for (const std::string& spelling : {std::string(name), other_spelling(name)}) {
    if (spelling.empty()) continue;
    if (exists(spelling)) return true;
    for (const auto& others :
         {fused_parts(last_component(spelling)), fused_names_of(last_component(spelling))}) {
      const bool any = std::any_of(others.begin(), others.end(), [&](const std::string& other) {
        return exists(with_last_component(spelling, other));
      });
      if (any) return true;
    }
  }
  return false;
}

std::string modelopt_algorithm(const ModeloptConfig& config, const std::string& module) {
  if (!config.quantized_layers) return config.algorithm;
  const ModeloptConfig::Layer* layer = modelopt_layer(config, module);
  return layer != nullptr ? layer->algorithm : std::string();
}

}  // namespace fewbit
