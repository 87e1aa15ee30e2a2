// SPDX-License-Identifier: Apache-2.0
#include "prepared/json_difference.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fewbit {
namespace {

std::string text_of(const Json* value) {
  if (value == nullptr) return "nothing";
  if (value->is_object() || value->is_array()) return std::string("a JSON ") + value->kind();
  return value->dump();
}

JsonDifference differ(const std::string& path, const Json* expected, const Json* found) {
  return {.path = path, .expected = text_of(expected), .found = text_of(found)};
}

std::string member(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

std::optional<JsonDifference> of_objects(const Json& expected, const Json& found,
                                         const std::string& path) {
  for (const auto& [key, value] : *expected.as_object()) {
    const Json* other = found.find(key);
    if (other == nullptr) return differ(member(path, key), &value, nullptr);
    auto difference = json_difference(value, *other, member(path, key));
    if (difference) return difference;
  }
  for (const auto& [key, value] : *found.as_object()) {
    if (expected.find(key) == nullptr) return differ(member(path, key), nullptr, &value);
  }
  return std::nullopt;
}

std::optional<JsonDifference> of_arrays(const Json& expected, const Json& found,
                                        const std::string& path) {
  const Json::Array& a = *expected.as_array();
  const Json::Array& b = *found.as_array();
  for (std::size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string element = fmt::format("{}[{}]", path, i);
    if (i >= a.size()) return differ(element, nullptr, &b[i]);
    if (i >= b.size()) return differ(element, &a[i], nullptr);
    auto difference = json_difference(a[i], b[i], element);
    if (difference) return difference;
  }
  return std::nullopt;
}

}  // namespace

std::optional<JsonDifference> json_difference(const Json& expected, const Json& found,
                                              const std::string& path) {
  if (expected.is_object() && found.is_object()) return of_objects(expected, found, path);
  if (expected.is_array() && found.is_array()) return of_arrays(expected, found, path);
  if (expected.dump() == found.dump()) return std::nullopt;
  return differ(path, &expected, &found);
}

}  // namespace fewbit
