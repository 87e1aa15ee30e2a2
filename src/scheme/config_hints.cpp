// SPDX-License-Identifier: Apache-2.0
// Words of quantization under keys that no producer uses, beside weights that are all plain.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "core/ascii.hpp"
#include "core/text_search.hpp"
#include "scheme/config_places.hpp"
#include "scheme/config_section.hpp"
#include "scheme/model_json.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

constexpr std::size_t most_findings = 8;

// Keys of blocks and of whole models, met outside of a block.
constexpr std::string_view keys[] = {"bits",          "nbits",        "num_bits",
                                     "w_bit",         "wbits",        "weight_bits",
                                     "bpw",           "q_group_size", "weight_block_size",
                                     "scale_fmt",     "expert_dtype", "kept_format",
                                     "hybrid_bit_map"};
constexpr std::string_view methods[] = {
    "gptq",  "awq",   "bnb", "bitsandbytes", "hqq",  "exl2", "exl3",   "nf4",   "nvfp4",
    "mxfp4", "mxfp8", "fp8", "int8",         "int4", "mlx",  "quanto", "quark", "torchao"};

bool listed(std::string_view text, std::span<const std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// "awq", "use_fp8", "awq_config", "bnb_4bit_quant_type".
bool names_method(std::string_view key) {
  if (key.starts_with("bnb_")) return true;
  if (key.starts_with("use_")) key.remove_prefix(4);
  if (key.ends_with("_config")) key.remove_suffix(7);
  return listed(key, methods);
}

// Quantizers of codecs and quantiles of losses are no quantization of weights, and caches have one
// of their own.
bool speaks_of_weights(std::string_view key) {
  return contains_text(key, "quant") &&
         !contains_any(
             key, {"quantizer", "quantize_dropout", "quantile", "quantum", "quantity", "cache"});
}

// Their quantization is of signals.
bool is_codec(std::string_view path) {
  return contains_any(lower_ascii(std::string(path)),
                      {"audio", "codec", "speech", "vocoder", "vq"});
}

bool is_plain_width(const Json& value) {
  const auto number = value.as_double();
  return number && (*number <= 0 || *number >= 16);
}

bool is_plain_type(const Json& value) {
  const std::string* name = value.as_string();
  if (name == nullptr) return true;
  const std::string lower = lower_ascii(*name);
  return !contains_any(lower, {"int", "float8", "float4", "fp8", "fp4"});
}

bool hints(std::string_view name, const Json& value) {
  if (says_nothing(value)) return false;
  const std::string key = lower_ascii(std::string(name));
  if (key == "dtype" || key == "torch_dtype") return !is_plain_type(value);
  const bool number = value.as_double().has_value();
  if (listed(key, keys))
    return !(number && contains_any(key, {"bit", "bpw"}) && is_plain_width(value));
  if (number) return speaks_of_weights(key) && contains_text(key, "bit") && !is_plain_width(value);
  const std::string* text = value.as_string();
  if (contains_text(key, "quant") && text != nullptr && listed(lower_ascii(*text), methods)) {
    return true;
  }
  return speaks_of_weights(key) || key == "moe_quant_algo" || names_method(key);
}

bool all_plain(const Inventory& inventory) {
  return std::none_of(inventory.drafts.begin(), inventory.drafts.end(), [](const Draft& draft) {
    return draft.module.scheme.quantized() || !draft.module.unreadable.empty();
  });
}

}  // namespace

void check_config_hints(Inventory& inventory, const ModelJson& config) {
  if (config.root == nullptr || !inventory.declared.all.empty() || !all_plain(inventory)) return;
  std::size_t found = 0;
  for (const ConfigPlace& place : config_places(*config.root)) {
    const Json::Object* members = place.object->as_object();
    if (members == nullptr || is_codec(place.path)) continue;
    for (const auto& [key, value] : *members) {
      if (!hints(key, value) || ++found > most_findings) continue;
      inventory.findings.push_back(
          {Level::warning, "config-quantization-key", config.name,
           fmt::format("{}{} {}", place.path, key, value_text(value)),
           "quantized weights: all are plain, and no method is named where loaders look"});
    }
  }
  if (found > most_findings) {
    inventory.findings.push_back({Level::warning, "config-quantization-key", config.name,
                                  fmt::format("{} more such keys", found - most_findings),
                                  "none beside plain weights"});
  }
}

}  // namespace fewbit
