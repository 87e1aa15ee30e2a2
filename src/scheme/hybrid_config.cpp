// SPDX-License-Identifier: Apache-2.0
#include "scheme/hybrid_config.hpp"

#include <fmt/format.h>

#include "checkpoint/json_text.hpp"
#include "core/quote.hpp"
#include "scheme/config_word.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

// Where the keys may stand, outermost first.
std::vector<const Json*> sections_of(const Json& root) {
  std::vector<const Json*> sections = {&root};
  for (std::size_t i = 0; i < sections.size(); ++i) {
    for (const std::string_view name :
         {"quantization_config", "quantization", "text_config", "llm_config", "language_config"}) {
      const Json* inner = sections[i]->find(name);
      if (inner != nullptr && inner->is_object()) sections.push_back(inner);
    }
  }
  return sections;
}

std::optional<std::vector<int>> bits_of(const Json& list) {
  const Json::Array* array = list.as_array();
  if (array == nullptr) return std::nullopt;
  std::vector<int> bits;
  for (const Json& item : *array) {
    const auto value = item.as_int64();
    if (!value || (*value != 3 && *value != 4)) return std::nullopt;
    bits.push_back(static_cast<int>(*value));
  }
  return bits;
}

void read_map(const Json& map, HybridConfig& config) {
  config.has_map = true;
  const Json::Object* layers = map.as_object();
  if (layers == nullptr) {
    config.malformed = fmt::format("hybrid_bit_map is {}", map.kind());
    return;
  }
  for (const auto& [name, list] : *layers) {
    const auto layer = name_number(name);
    auto bits = bits_of(list);
    if (layer && bits) {
      config.bits.emplace(*layer, *std::move(bits));
    } else if (config.malformed.empty()) {
      config.malformed = fmt::format("entry {} of hybrid_bit_map", quote(name));
    }
  }
}

}  // namespace

Result<std::optional<HybridConfig>> read_hybrid_config(const Checkpoint& checkpoint) {
  for (const std::string_view file : {"config.json", "hf_quant_config.json"}) {
    FEWBIT_TRY(const auto root, checkpoint.json_file(file));
    if (root == nullptr) continue;
    HybridConfig config;
    config.where = std::string(file);
    for (const Json* section : sections_of(*root)) {
      const Json* map = section->find("hybrid_bit_map");
      if (map != nullptr && !config.has_map) read_map(*map, config);
      if (std::string kept = word_at(*section, "kept_format"); !kept.empty()) {
        config.kept_format = std::move(kept);
      }
      const Json* format = section->find("kept_format");
      if (is_odd_word(format)) config.odd_format = value_text(*format);
    }
    const bool any = config.has_map || !config.kept_format.empty() || !config.odd_format.empty();
    if (any) return std::optional(std::move(config));
  }
  return std::optional<HybridConfig>{};
}

}  // namespace fewbit
