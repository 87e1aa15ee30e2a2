// SPDX-License-Identifier: Apache-2.0
#include "scheme/nested_block.hpp"

#include <string_view>
#include <unordered_set>
#include <utility>

#include "checkpoint/json_text.hpp"

namespace fewbit {
namespace {

constexpr std::string_view inner_keys[] = {"quantization_config", "compression_config",
                                           "quantization"};

// MLX's table of widths beside another method's keys is no part of these.
bool is_of_another_method(const Json& outer, const Json& inner) {
  return outer.find("quant_method") != nullptr && inner.find("bits") != nullptr &&
         inner.find("quant_method") == nullptr && inner.find("quant_algo") == nullptr;
}

// Key of the block inside; empty when there is none.
std::string_view inner_key(const Json& block) {
  for (const std::string_view key : inner_keys) {
    const Json* inner = block.find(key);
    if (inner == nullptr || !inner->is_object() || inner->as_object()->empty()) continue;
    if (key != "quantization" || !is_of_another_method(block, *inner)) return key;
  }
  return {};
}

std::unordered_set<std::string_view> names_of(const Json& object, std::string_view but) {
  std::unordered_set<std::string_view> names;
  for (const auto& [name, value] : *object.as_object()) {
    if (name != but && !value.is_null()) names.insert(name);
  }
  return names;
}

Json merge(const Json& outer, std::string_view key) {
  const Json& inner = *outer.find(key);
  const auto outer_names = names_of(outer, key);
  const auto inner_names = names_of(inner, {});
  Json::Object members;
  for (const auto& [name, value] : *inner.as_object()) {
    if (!value.is_null() || !outer_names.contains(name)) members.emplace_back(name, value);
  }
  for (const auto& [name, value] : *outer.as_object()) {
    if (outer_names.contains(name) && !inner_names.contains(name)) {
      members.emplace_back(name, value);
    }
  }
  return Json(std::move(members));
}

// Keys of one value in both blocks whose values differ; lists and tables are told elsewhere.
void add_hidden(const Json& outer, std::string_view key,
                std::vector<std::pair<std::string, std::string>>& hidden) {
  const Json& inner = *outer.find(key);
  for (const auto& [name, value] : *outer.as_object()) {
    const Json* same = name != key && !value.is_null() ? inner.find(name) : nullptr;
    if (same == nullptr || same->is_null() || same->is_object() || same->is_array()) continue;
    if (same->dump() == value.dump()) continue;
    hidden.emplace_back(name + " " + value_text(value), name + " " + value_text(*same));
  }
}

}  // namespace

NestedBlock nested_block(const Json& block) {
  constexpr int most_levels = 2;  // each is copied
  NestedBlock out;
  const Json* at = &block;
  for (int level = 0; level < most_levels; ++level) {
    const std::string_view key = inner_key(*at);
    if (key.empty()) break;
    out.path += "." + std::string(key);
    add_hidden(*at, key, out.hidden);
    out.merged = std::make_shared<const Json>(merge(*at, key));
    at = out.merged.get();
  }
  return out;
}

}  // namespace fewbit
