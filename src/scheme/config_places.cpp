// SPDX-License-Identifier: Apache-2.0
#include "scheme/config_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/ascii.hpp"
#include "scheme/config_word.hpp"

namespace fewbit {
namespace {

constexpr std::pair<std::string_view, QuantizationKey> keys[] = {
    {"quantization_config", QuantizationKey::block},
    {"compression_config", QuantizationKey::block},
    {"quant_config", QuantizationKey::block},
    {"quantize_config", QuantizationKey::block},
    {"quantization", QuantizationKey::block},
    {"sparsity_config", QuantizationKey::sparse},
    {"quant_method", QuantizationKey::method},
    {"quant_algo", QuantizationKey::method},
    {"quantize", QuantizationKey::text},
    {"quantization_method", QuantizationKey::text},
    {"quantization_scheme", QuantizationKey::text},
    {"weight_quant", QuantizationKey::text},
    {"weight_quantization", QuantizationKey::text},
    {"weights_quantization", QuantizationKey::text},
    {"quantized", QuantizationKey::flag},
    {"load_in_4bit", QuantizationKey::flag},
    {"load_in_8bit", QuantizationKey::flag},
};

// Weights of which some are left out, so that others stand elsewhere.
bool is_sparse(const Json& block) {
  const Json* format = block.is_object() ? block.find("format") : &block;
  return format != nullptr && (format->as_string() == nullptr || *format->as_string() != "dense");
}

QuantizationKey kind_of(std::string_view name) {
  const std::string lower = lower_ascii(std::string(name));
  for (const auto& [key, kind] : keys) {
    if (key == lower) return kind;
  }
  return QuantizationKey::none;
}

void add_inner(const Json& value, const std::string& path, std::vector<ConfigPlace>& places) {
  if (value.is_object()) places.push_back({&value, path + "."});
  const Json::Array* items = value.as_array();
  if (items == nullptr) return;
  for (std::size_t i = 0; i < items->size(); ++i) {
    const Json& item = (*items)[i];
    if (item.is_object() || item.is_array())
      add_inner(item, fmt::format("{}[{}]", path, i), places);
  }
}

}  // namespace

std::vector<ConfigPlace> config_places(const Json& config) {
  std::vector<ConfigPlace> places = {{&config, ""}};
  for (std::size_t i = 0; i < places.size() && places.size() < most_config_places; ++i) {
    const Json::Object* members = places[i].object->as_object();
    if (members == nullptr) continue;
    const std::string path = places[i].path;
    for (const auto& [name, value] : *members) {
      if (kind_of(name) == QuantizationKey::none) add_inner(value, path + name, places);
    }
  }
  return places;
}

bool says_nothing(const Json& value) {
  if (value.is_null() || value.as_bool() == false) return true;
  if (const Json::Object* members = value.as_object()) {
    // A method or an algorithm that is no name is not known, and not none.
    if (is_odd_word(value.find("quant_method")) || is_odd_word(value.find("quant_algo")))
      return false;
    return std::all_of(members->begin(), members->end(),
                       [](const auto& member) { return says_nothing(member.second); });
  }
  if (const Json::Array* items = value.as_array()) return items->empty();
  const std::string* text = value.as_string();
  if (text == nullptr) return false;
  const std::string lower = lower_ascii(*text);
  constexpr std::string_view plain[] = {"",         "none", "no",      "false", "bf16",
                                        "bfloat16", "fp16", "float16", "fp32",  "float32"};
  return std::find(std::begin(plain), std::end(plain), lower) != std::end(plain);
}

bool is_quantization_key(std::string_view name) { return kind_of(name) != QuantizationKey::none; }

QuantizationKey quantization_key(std::string_view name, const Json& value) {
  const QuantizationKey kind = kind_of(name);
  // Odd values of the usual key are named for what they are.
  if (name == "quantization_config" && !value.is_null() && !value.is_object()) return kind;
  if (kind == QuantizationKey::none || says_nothing(value)) return QuantizationKey::none;
  switch (kind) {
    case QuantizationKey::block: {
      // The map of a checkpoint of several widths, which its own reader takes.
      const bool map =
          value.find("hybrid_bit_map") != nullptr || value.find("kept_format") != nullptr;
      const bool method =
          value.find("quant_method") != nullptr || value.find("quant_algo") != nullptr;
      return map && !method ? QuantizationKey::none : kind;
    }
    case QuantizationKey::sparse:
      return is_sparse(value) ? kind : QuantizationKey::none;
    case QuantizationKey::method:
    case QuantizationKey::text:
      return value.as_string() != nullptr ? kind : QuantizationKey::none;
    default:
      return value.as_bool() == true || value.as_string() != nullptr ? kind : QuantizationKey::none;
  }
}

}  // namespace fewbit
