// SPDX-License-Identifier: Apache-2.0
// Kinds, accessors and changes of Json.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "checkpoint/json.hpp"

namespace fewbit {
namespace {

// Shortest text that reads back as the same double, marked as no integer.
std::string double_text(double value) {
  char buffer[32];
  const auto end = std::to_chars(std::begin(buffer), std::end(buffer), value).ptr;
  std::string text(std::begin(buffer), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

Json::Json(double value) {
  if (std::isfinite(value)) value_ = Number{value, double_text(value)};
}

bool Json::is_integer() const {
  return std::holds_alternative<std::int64_t>(value_) ||
         std::holds_alternative<std::uint64_t>(value_);
}

bool Json::is_number() const { return is_integer() || std::holds_alternative<Number>(value_); }

const char* Json::kind() const {
  if (is_null()) return "null";
  if (is_bool()) return "boolean";
  if (is_integer()) return "integer";
  if (is_number()) return "number";
  if (is_string()) return "string";
  return is_array() ? "array" : "object";
}

std::optional<bool> Json::as_bool() const {
  if (const auto* value = std::get_if<bool>(&value_)) return *value;
  return std::nullopt;
}

std::optional<std::int64_t> Json::as_int64() const {
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return *value;
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) {
    if (*value <= std::uint64_t{std::numeric_limits<std::int64_t>::max()}) {
      return static_cast<std::int64_t>(*value);
    }
  }
  return std::nullopt;
}

std::optional<std::uint64_t> Json::as_uint64() const {
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) {
    if (*value >= 0) return static_cast<std::uint64_t>(*value);
  }
  return std::nullopt;
}

std::optional<double> Json::as_double() const {
  if (const auto* value = std::get_if<Number>(&value_)) {
    return std::isfinite(value->value) ? std::optional(value->value) : std::nullopt;
  }
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  return std::nullopt;
}

const std::string* Json::as_string() const { return std::get_if<std::string>(&value_); }
const Json::Array* Json::as_array() const { return std::get_if<Array>(&value_); }
const Json::Object* Json::as_object() const { return std::get_if<Object>(&value_); }

std::string Json::number_text() const {
  if (const auto* value = std::get_if<Number>(&value_)) return value->text;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return std::to_string(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return std::to_string(*value);
  return {};
}

const Json* Json::find(std::string_view key) const {
  const Object* object = as_object();
  if (object == nullptr) return nullptr;
  const auto at = std::find_if(object->begin(), object->end(),
                               [&](const Member& member) { return member.first == key; });
  return at == object->end() ? nullptr : &at->second;
}

std::string Json::string_at(std::string_view key) const {
  const Json* value = find(key);
  const std::string* text = value != nullptr ? value->as_string() : nullptr;
  return text != nullptr ? *text : std::string();
}

void Json::set(std::string_view key, Json value) {
  if (!is_object()) value_ = Object{};
  auto& object = std::get<Object>(value_);
  const auto at = std::find_if(object.begin(), object.end(),
                               [&](const Member& member) { return member.first == key; });
  if (at == object.end()) {
    object.emplace_back(std::string(key), std::move(value));
  } else {
    at->second = std::move(value);
  }
}

void Json::append_member(std::string key, Json value) {
  if (!is_object()) value_ = Object{};
  std::get<Object>(value_).emplace_back(std::move(key), std::move(value));
}

void Json::push_back(Json value) {
  if (!is_array()) value_ = Array{};
  std::get<Array>(value_).push_back(std::move(value));
}

}  // namespace fewbit
