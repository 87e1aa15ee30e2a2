// SPDX-License-Identifier: Apache-2.0
#include "scheme/config_value_kinds.hpp"

#include <algorithm>

#include "scheme/config_places.hpp"
#include "scheme/config_word.hpp"
#include "scheme/integer_config.hpp"

namespace fewbit {
namespace {

bool all_of(const Json& list, bool (*holds)(const Json&)) {
  const Json::Array* items = list.as_array();
  return items != nullptr && std::all_of(items->begin(), items->end(), holds);
}

bool is_word(const Json& value) { return word_of(&value) != nullptr; }

// Averages of mixed widths, and 1.58.
bool takes_fractions(Producer producer) {
  return producer == Producer::unknown || producer == Producer::exl2 || producer == Producer::exl3;
}

bool is_width(const Json& value, Producer producer) {
  const auto number = value.as_double();
  return number && *number > 0 && *number <= 32 && (takes_fractions(producer) || value.as_int64());
}

// Rows and columns of FP8 blocks.
bool is_block_size(const Json& value) {
  return all_of(value, [](const Json& side) { return side.as_int64().value_or(0) > 0; }) &&
         value.as_array()->size() == 2;
}

bool is_group(const Json& value, Producer producer, bool outermost) {
  const bool auto_round = producer == Producer::auto_round;
  // Lists as the outermost group_size have a rule of their own, FP8's.
  const bool checked = outermost && !auto_round;
  if (value.is_array() && (checked || is_block_size(value))) return true;
  const auto number = value.as_int64();
  if (number && ((*number >= 1 && *number <= largest_group_size) || *number == -1)) return true;
  // AutoRound's scale a matrix.
  return auto_round && number == 0;
}

bool is_step(const Json& value) {
  return is_word(value) || (value.is_object() && value.find("name") != nullptr);
}

bool has_type(const Json& value) { return value.is_object() && value.find("dtype") != nullptr; }

bool is_spec(const Json& value) {
  const bool list = all_of(value, has_type) && !value.as_array()->empty();
  return has_type(value) || list;
}

bool is_usable(const ConfigKey& key, Producer producer, const Json& value, bool outermost) {
  const std::string* word = word_of(&value);
  switch (key.kind) {
    case ValueKind::word:
      return word != nullptr;
    case ValueKind::flag:
      return value.as_bool().has_value();
    case ValueKind::object:
    case ValueKind::settings:
      return value.is_object();
    case ValueKind::steps:
      return is_step(value) || says_nothing(value) || all_of(value, is_step);
    case ValueKind::spec:
      return is_spec(value);
    case ValueKind::width:
      return is_width(value, producer);
    case ValueKind::group:
      return is_group(value, producer, outermost && key.name == "group_size");
    case ValueKind::names:  // entries that are no names, and a list that is none, name nothing
      return all_of(value, is_word);
    case ValueKind::nested_names:
      return word != nullptr ||
             all_of(value, [](const Json& one) { return is_word(one) || all_of(one, is_word); });
    case ValueKind::words:
      return word != nullptr || all_of(value, is_word);
    case ValueKind::activation:
      return word != nullptr && (*word == "dynamic" || *word == "static");
    case ValueKind::integer:
      return value.as_int64().has_value();
    case ValueKind::number:
      return value.as_double().has_value();
  }
  return true;
}

std::string_view text_of(ValueKind kind, Producer producer) {
  switch (kind) {
    case ValueKind::word:
      return "a name";
    case ValueKind::flag:
      return "true or false";
    case ValueKind::object:
    case ValueKind::settings:
      return "an object";
    case ValueKind::steps:
      return "an object with a name, or a list of such";
    case ValueKind::spec:
      return "an object with dtype and qscheme, or a list of such";
    case ValueKind::width:
      return takes_fractions(producer) ? "a number of bits, above 0 to 32"
                                       : "an integer from 1 to 32";
    case ValueKind::group:
      return "-1 (a scale a row) or a number of columns above 0";
    case ValueKind::names:
      return "a list of names";
    case ValueKind::nested_names:
      return "a name, a list of names, or a list of such lists";
    case ValueKind::words:
      return "a name, or a list of names";
    case ValueKind::activation:
      return "dynamic or static";
    case ValueKind::integer:
      return "an integer";
    case ValueKind::number:
      return "a number";
  }
  return "another value";
}

}  // namespace

const ConfigKey* find_config_key(Producer producer, std::string_view name, const KeyPlace& place) {
  const auto keys = config_keys();
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& key) {
    return key.name == name && (key.producer == Producer::unknown || key.producer == producer) &&
           (key.in.empty() || key.in == place.in);
  });
  return found != keys.end() ? &*found : nullptr;
}

std::string expected_value(const ConfigKey& key, Producer producer, const Json& value,
                           const KeyPlace& place) {
  if (value.is_null() ? key.nullable : is_usable(key, producer, value, place.outermost)) return "";
  std::string text(key.expected.empty() ? text_of(key.kind, producer) : key.expected);
  if (value.is_null()) text += null_is_absent;
  return text;
}

}  // namespace fewbit
