// SPDX-License-Identifier: Apache-2.0
#include "scheme/layer_kinds.hpp"

#include <algorithm>
#include <string_view>

#include "checkpoint/gguf_metadata.hpp"
#include "checkpoint/json.hpp"
#include "core/text_search.hpp"

namespace fewbit {
namespace {

using Kinds = std::map<std::int64_t, std::string>;

// Lists of quantizers and towers say nothing of these layers.
bool speaks_of_others(std::string_view key) {
  return contains_text(key, "quant") || contains_text(key, "vision") ||
         contains_text(key, "audio") || contains_text(key, "compression");
}

bool lists_layers(std::string_view key) {
  return contains_text(key, "layer") || contains_text(key, "idx") ||
         contains_text(key, "indices") || contains_text(key, "list");
}

// Numbers of layers, which some count from 1.
void read_numbers(const Json::Array& list, std::int64_t layers, Kinds& kinds) {
  for (const Json& entry : list) {
    const auto number = entry.as_int64();
    if (!number || *number < 0 || *number > layers) continue;
    kinds[*number] += "in ";
    kinds[*number - 1] += "before ";
  }
}

// Names and versions may have as many characters as there are layers.
bool is_pattern(std::string_view key) {
  return contains_text(key, "pattern") || contains_text(key, "layer") ||
         contains_text(key, "block");
}

// "4,5,6" or one character a layer.
void read_text(std::string_view key, const std::string& text, std::int64_t layers, Kinds& kinds) {
  if (static_cast<std::int64_t>(text.size()) == layers && layers > 1 && is_pattern(key)) {
    for (std::int64_t i = 0; i < layers; ++i) kinds[i] += text[static_cast<std::size_t>(i)];
  } else if (lists_layers(key) && contains_text(text, ",")) {
    const auto numbers = Json::parse("[" + text + "]", "config.json");
    if (numbers && numbers->is_array()) read_numbers(*numbers->as_array(), layers, kinds);
  }
}

void read_config(const Json& object, std::int64_t layers, Kinds& kinds) {
  const Json::Object* members = object.as_object();
  if (members == nullptr) return;
  for (const auto& [key, value] : *members) {
    if (speaks_of_others(key)) continue;
    if (const Json::Array* list = value.as_array()) {
      if (static_cast<std::int64_t>(list->size()) >= layers) {
        for (std::int64_t i = 0; i < layers; ++i) {
          kinds[i] += (*list)[static_cast<std::size_t>(i)].dump() + " ";
        }
      } else if (lists_layers(key)) {
        read_numbers(*list, layers, kinds);
      }
    } else if (key == "num_kv_shared_layers") {  // the last ones have no keys and values
      const std::int64_t shared = value.as_int64().value_or(0);
      for (std::int64_t i = std::max<std::int64_t>(layers - shared, 0); i < layers; ++i) {
        kinds[i] += "shared ";
      }
    } else if (const std::string* text = value.as_string()) {
      read_text(key, *text, layers, kinds);
    } else {
      read_config(value, layers, kinds);
    }
  }
}

void read_metadata(const GgufMetadata& metadata, std::int64_t layers, Kinds& kinds) {
  const std::string prefix = std::string(metadata.architecture().value_or("")) + ".";
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    const GgufValue& value = entry.value;
    const auto size = static_cast<std::int64_t>(value.size());
    if (!entry.key.starts_with(prefix) || !value.is_array() || size < layers) continue;
    if (value.int64_at(0)) {
      for (std::int64_t i = 0; i < layers; ++i) {
        const auto number = value.int64_at(static_cast<std::uint64_t>(i));
        kinds[i] += std::to_string(number.value_or(0)) + " ";
      }
    } else if (value.bytes().size() == value.size()) {
      for (std::int64_t i = 0; i < layers; ++i) {
        kinds[i] += value.bytes()[static_cast<std::size_t>(i)] == std::byte{0} ? "0 " : "1 ";
      }
    }
  }
}

}  // namespace

LayerKinds::LayerKinds(const Checkpoint& checkpoint, std::int64_t num_layers) {
  if (num_layers < 1 || num_layers > 4096) return;
  if (const GgufMetadata* metadata = checkpoint.gguf_metadata()) {
    read_metadata(*metadata, num_layers, kinds_);
  } else if (const auto config = checkpoint.json_file("config.json"); config && *config) {
    read_config(**config, num_layers, kinds_);
  }
}

const std::string& LayerKinds::of(std::int64_t layer) const {
  static const std::string none;
  const auto found = kinds_.find(layer);
  return found != kinds_.end() ? found->second : none;
}

}  // namespace fewbit
