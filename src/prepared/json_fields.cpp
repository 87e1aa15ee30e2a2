// SPDX-License-Identifier: Apache-2.0
#include "prepared/json_fields.hpp"

#include <fmt/format.h>

#include "checkpoint/relative_name.hpp"
#include "core/quote.hpp"

namespace fewbit {
namespace {

std::string found(const Json* value) {
  if (value == nullptr) return "nothing";
  if (const auto* text = value->as_string()) return quote(*text);
  if (value->is_number()) return value->number_text().substr(0, 40);
  return std::string("a JSON ") + value->kind();
}

}  // namespace

std::string JsonFields::at(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

Error JsonFields::bad(std::string_view key, std::string_view what) const {
  return Error{ErrorCode::corrupt, fmt::format("{}: {}", at(key), what), where_};
}

Error JsonFields::expected(std::string_view key, std::string_view what) const {
  return bad(key, fmt::format("expected {}, found {}", what, found(json_.find(key))));
}

Result<std::int64_t> JsonFields::integer(std::string_view key, std::int64_t low,
                                         std::int64_t high) const {
  const Json* value = json_.find(key);
  const auto number = value != nullptr ? value->as_int64() : std::nullopt;
  if (number && *number >= low && *number <= high) return *number;
  return expected(key, fmt::format("an integer from {} to {}", low, high));
}

Result<bool> JsonFields::boolean(std::string_view key) const {
  const Json* value = json_.find(key);
  const auto flag = value != nullptr ? value->as_bool() : std::nullopt;
  if (flag) return *flag;
  return expected(key, "true or false");
}

Result<std::string> JsonFields::text(std::string_view key) const {
  const Json* value = json_.find(key);
  const std::string* text = value != nullptr ? value->as_string() : nullptr;
  if (text != nullptr) return *text;
  return expected(key, "a string");
}

Result<std::string> JsonFields::file_name(std::string_view key) const {
  FEWBIT_TRY(std::string name, text(key));
  if (stays_below(name)) return name;
  return expected(key, "a file name below the folder");
}

Result<JsonFields> JsonFields::object(std::string_view key) const {
  const Json* value = json_.find(key);
  if (value == nullptr || !value->is_object()) return expected(key, "an object");
  return JsonFields(*value, at(key), where_);
}

Result<std::vector<JsonFields>> JsonFields::objects(std::string_view key) const {
  const Json* value = json_.find(key);
  const Json::Array* list = value != nullptr ? value->as_array() : nullptr;
  if (list == nullptr) return expected(key, "an array of objects");
  std::vector<JsonFields> out;
  out.reserve(list->size());
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string element = fmt::format("{}[{}]", at(key), i);
    if (!(*list)[i].is_object()) {
      return Error{ErrorCode::corrupt,
                   fmt::format("{}: expected an object, found {}", element, found(&(*list)[i])),
                   where_};
    }
    out.emplace_back((*list)[i], element, where_);
  }
  return out;
}

Result<std::vector<std::int64_t>> JsonFields::integers(std::string_view key, std::int64_t low,
                                                       std::int64_t high) const {
  const Json* value = json_.find(key);
  const Json::Array* list = value != nullptr ? value->as_array() : nullptr;
  if (list == nullptr) return expected(key, "an array of integers");
  std::vector<std::int64_t> out;
  out.reserve(list->size());
  for (const Json& element : *list) {
    const auto number = element.as_int64();
    if (!number || *number < low || *number > high) {
      return bad(key, fmt::format("expected integers from {} to {}, found {}", low, high,
                                  found(&element)));
    }
    out.push_back(*number);
  }
  return out;
}

bool JsonFields::is_null(std::string_view key) const {
  const Json* value = json_.find(key);
  return value == nullptr || value->is_null();
}

}  // namespace fewbit
