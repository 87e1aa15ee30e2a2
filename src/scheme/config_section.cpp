// SPDX-License-Identifier: Apache-2.0
#include "scheme/config_section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "scheme/model_json.hpp"

namespace fewbit {

ConfigSection::ConfigSection(const Json& root, std::string where) : where_(std::move(where)) {
  sections_.push_back(&root);
  for (const std::string_view name : {"text_config", "llm_config", "language_config"}) {
    const Json* section = root.find(name);
    if (section != nullptr && section->is_object()) sections_.push_back(section);
  }
}

Result<void> ConfigSection::agree(Keys keys) const {
  const Entry first = find(keys);
  if (!first) return {};
  for (const std::string_view key : keys) {
    const Entry other = key == first.key ? Entry{} : find({key});
    if (!other) continue;
    // A list a layer is compared with nothing.
    if (first.value->as_array() != nullptr || other.value->as_array() != nullptr) continue;
    const auto a = first.value->as_double();
    const auto b = other.value->as_double();
    if (a && b ? *a == *b : first.value->dump() == other.value->dump()) continue;
    return Error{ErrorCode::inconsistent,
                 fmt::format("{} is {}, but {} is {}: one thing under two names", shown(first.key),
                             value_text(*first.value), shown(other.key), value_text(*other.value)),
                 where_};
  }
  return {};
}

ConfigSection::Entry ConfigSection::find(Keys keys) const {
  for (const std::string_view key : keys) {
    for (const Json* section : sections_) {
      const Json* value = section->find(key);
      if (value != nullptr && !value->is_null()) return {key, value};
    }
  }
  return {};
}

Error ConfigSection::refuse(ErrorCode code, std::string_view key, const Json& value,
                            std::string_view expected) const {
  return Error{code, fmt::format("{} is {}, expected {}", shown(key), value_text(value), expected),
               where_};
}

std::string ConfigSection::shown(std::string_view key) const {
  const std::string native =
      where_.ends_with(params_file) ? native_key(*sections_.front(), key) : "";
  return native.empty() ? std::string(key) : native;
}

Result<std::optional<std::int64_t>> ConfigSection::integer(Keys keys, std::int64_t least,
                                                           std::int64_t most) const {
  const Entry entry = find(keys);
  if (!entry) return std::optional<std::int64_t>{};
  const std::optional<std::int64_t> value = entry.value->as_int64();
  if (!value || *value < least || *value > most) {
    return refuse(ErrorCode::corrupt, entry.key, *entry.value,
                  fmt::format("an integer from {} to {}", least, most));
  }
  FEWBIT_TRY(agree(keys));
  return value;
}

Result<std::int64_t> ConfigSection::required_integer(Keys keys, std::int64_t least,
                                                     std::int64_t most) const {
  FEWBIT_TRY(const std::optional<std::int64_t> value, integer(keys, least, most));
  if (value) return *value;
  // Of keys for one thing, one that this kind of file has.
  const auto* const own = std::find_if(keys.begin(), keys.end(),
                                       [&](std::string_view key) { return shown(key) != key; });
  return Error{ErrorCode::corrupt,
               fmt::format("{} is missing, expected an integer from {} to {}",
                           shown(own != keys.end() ? *own : *keys.begin()), least, most),
               where_};
}

Result<std::optional<double>> ConfigSection::number(Keys keys) const {
  const Entry entry = find(keys);
  if (!entry) return std::optional<double>{};
  const std::optional<double> value = entry.value->as_double();
  if (!value) return refuse(ErrorCode::corrupt, entry.key, *entry.value, "a finite number");
  FEWBIT_TRY(agree(keys));
  return value;
}

Result<std::optional<bool>> ConfigSection::boolean(Keys keys) const {
  const Entry entry = find(keys);
  if (!entry) return std::optional<bool>{};
  const std::optional<bool> value = entry.value->as_bool();
  if (!value) return refuse(ErrorCode::corrupt, entry.key, *entry.value, "true or false");
  FEWBIT_TRY(agree(keys));
  return value;
}

Result<std::optional<std::string>> ConfigSection::string(Keys keys) const {
  const Entry entry = find(keys);
  if (!entry) return std::optional<std::string>{};
  const std::string* value = entry.value->as_string();
  if (value == nullptr) return refuse(ErrorCode::corrupt, entry.key, *entry.value, "a string");
  return std::optional<std::string>{*value};
}

Result<std::vector<std::int64_t>> ConfigSection::integers(Keys keys) const {
  std::vector<std::int64_t> values;
  const Entry entry = find(keys);
  if (!entry) return values;
  const Json::Array* array = entry.value->as_array();
  if (array == nullptr) {
    return refuse(ErrorCode::corrupt, entry.key, *entry.value, "a list of integers");
  }
  for (const Json& item : *array) {
    const std::optional<std::int64_t> value = item.as_int64();
    if (!value) return refuse(ErrorCode::corrupt, entry.key, *entry.value, "a list of integers");
    values.push_back(*value);
  }
  return values;
}

}  // namespace fewbit
