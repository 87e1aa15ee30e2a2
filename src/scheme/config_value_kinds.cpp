// SPDX-License-Identifier: Apache-2.0
#include "scheme/config_value_kinds.hpp"

#include <algorithm>
#include <iterator>

#include "scheme/config_word.hpp"
#include "scheme/integer_config.hpp"

namespace fewbit {
namespace {

enum class Kind { word, flag, object, settings, width, group, names, activation };

struct Key {
  std::string_view name;
  Kind kind;
  std::string_view expected;
  Producer producer = Producer::unknown;  // whose key it is; unknown: anybody's
};

constexpr std::string_view a_type = "the name of a type";
constexpr std::string_view a_format = "the name of a format";
constexpr std::string_view an_algorithm = "the name of an algorithm";
constexpr std::string_view yes_or_no = "true or false";
constexpr std::string_view by_module = "an object with settings by module";

constexpr Key keys[] = {
    {"quant_algo", Kind::word, an_algorithm},
    {"kv_cache_quant_algo", Kind::word, an_algorithm},
    {"moe_quant_algo", Kind::word, an_algorithm},
    {"fmt", Kind::word, a_type},
    {"scale_fmt", Kind::word, a_type},
    {"weight_scale_semantics", Kind::word, "a name"},
    {"kept_format", Kind::word, a_format},
    {"expert_dtype", Kind::word, a_type, Producer::fp8},
    {"checkpoint_format", Kind::word, a_format, Producer::gptq},
    {"format", Kind::word, a_format, Producer::gptq},
    {"version", Kind::word, a_format, Producer::gptq},
    {"pack_dtype", Kind::word, a_type, Producer::gptq},
    {"checkpoint_format", Kind::word, a_format, Producer::awq},
    {"version", Kind::word, a_format, Producer::awq},
    {"packing_format", Kind::word, a_format, Producer::auto_round},
    {"data_type", Kind::word, a_type, Producer::auto_round},
    {"format", Kind::word, a_format, Producer::compressed_tensors},
    {"mode", Kind::word, "affine, mxfp4, mxfp8 or nvfp4", Producer::mlx},
    {"linear_class", Kind::word, "the name of a class", Producer::ternary},
    {"bnb_4bit_quant_type", Kind::word, a_type, Producer::bitsandbytes},
    {"load_in_4bit", Kind::flag, yes_or_no, Producer::bitsandbytes},
    {"load_in_8bit", Kind::flag, yes_or_no, Producer::bitsandbytes},
    {"sym", Kind::flag, yes_or_no, Producer::gptq},
    {"zero_point", Kind::flag, yes_or_no, Producer::gptq},
    {"desc_act", Kind::flag, yes_or_no, Producer::gptq},
    {"lm_head", Kind::flag, yes_or_no, Producer::gptq},
    {"is_marlin_format", Kind::flag, yes_or_no, Producer::gptq},
    {"zero_point", Kind::flag, yes_or_no, Producer::awq},
    {"sym", Kind::flag, yes_or_no, Producer::auto_round},
    {"dynamic", Kind::settings, "an object of rules", Producer::gptq},
    {"extra_config", Kind::settings, by_module, Producer::auto_round},
    {"layer_quant_config", Kind::settings, by_module, Producer::quark},
    {"layer_type_quant_config", Kind::settings, "an object with settings by class",
     Producer::quark},
    {"global_quant_config", Kind::object, "an object of settings", Producer::quark},
    {"quantized_layers", Kind::settings, by_module, Producer::modelopt},
    {"config_groups", Kind::object, "an object of groups", Producer::modelopt},
    {"config_groups", Kind::object, "an object of groups", Producer::compressed_tensors},
    {"kv_cache_scheme", Kind::object, "an object of settings", Producer::compressed_tensors},
    {"bits", Kind::width, {}},
    {"w_bit", Kind::width, {}},
    {"wbits", Kind::width, {}},
    {"num_bits", Kind::width, {}},
    {"nbits", Kind::width, {}},
    {"group_size", Kind::group, {}},
    {"q_group_size", Kind::group, {}},
    {"awq_block_size", Kind::group, {}},
    {"ignore", Kind::names, {}},
    {"ignored_layers", Kind::names, {}},
    {"exclude", Kind::names, {}},
    {"exclude_modules", Kind::names, {}},
    {"modules_to_not_convert", Kind::names, {}},
    {"llm_int8_skip_modules", Kind::names, {}},
    {"activation_scheme", Kind::activation, {}},
};

const Key* key_of(Producer producer, std::string_view name) {
  const auto* const found = std::find_if(std::begin(keys), std::end(keys), [&](const Key& key) {
    return key.name == name && (key.producer == Producer::unknown || key.producer == producer);
  });
  return found != std::end(keys) ? found : nullptr;
}

std::string expected_width(Producer producer, const Json& value) {
  const auto number = value.as_double();
  const bool in_range = number && *number > 0 && *number <= 32;
  // Averages of mixed widths, and 1.58.
  if (producer == Producer::unknown || producer == Producer::exl2 || producer == Producer::exl3) {
    return in_range ? "" : "a number of bits, above 0 to 32";
  }
  return in_range && value.as_int64() ? "" : "an integer from 1 to 32";
}

// Rows and columns of FP8 blocks.
bool is_block_size(const Json& value) {
  const Json::Array* sides = value.as_array();
  return sides != nullptr && sides->size() == 2 &&
         std::all_of(sides->begin(), sides->end(),
                     [](const Json& side) { return side.as_int64().value_or(0) > 0; });
}

std::string expected_group(Producer producer, const Json& value, KeyDepth depth) {
  const bool auto_round = producer == Producer::auto_round;
  // The outermost ones of FP8 have a rule of their own.
  const bool checked = depth == KeyDepth::outermost && !auto_round;
  if (value.is_array() && (checked || is_block_size(value))) return "";
  const auto number = value.as_int64();
  if (number && ((*number >= 1 && *number <= largest_group_size) || *number == -1)) return "";
  // AutoRound's scale a matrix.
  if (auto_round && number == 0) return "";
  return "-1 (a scale a row) or a number of columns above 0";
}

// Entries that are no names, and a list that is none, name nothing.
std::string expected_names(const Json& value) {
  const Json::Array* items = value.as_array();
  const bool names =
      items != nullptr && std::all_of(items->begin(), items->end(),
                                      [](const Json& one) { return word_of(&one) != nullptr; });
  return names ? "" : "a list of names";
}

}  // namespace

std::string expected_value(Producer producer, std::string_view name, const Json& value,
                           KeyDepth depth) {
  const Key* key = key_of(producer, name);
  if (key == nullptr || value.is_null()) return "";
  const std::string* word = word_of(&value);
  switch (key->kind) {
    case Kind::word:
      return word != nullptr ? "" : std::string(key->expected);
    case Kind::flag:
      return value.as_bool() ? "" : std::string(key->expected);
    case Kind::object:
    case Kind::settings:
      return value.is_object() ? "" : std::string(key->expected);
    case Kind::width:
      return expected_width(producer, value);
    case Kind::group:
      return expected_group(producer, value, depth);
    case Kind::names:
      return expected_names(value);
    case Kind::activation:
      return word != nullptr && (*word == "dynamic" || *word == "static") ? ""
                                                                          : "dynamic or static";
  }
  return "";
}

bool holds_settings(Producer producer, std::string_view name) {
  const Key* key = key_of(producer, name);
  return key != nullptr && key->kind == Kind::settings;
}

}  // namespace fewbit
