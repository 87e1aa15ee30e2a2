// SPDX-License-Identifier: Apache-2.0
// Layer rules as SGLang has them: tables in the parameters.
#include "golden/ops.hpp"
#include "scheme/sglang_compat.hpp"

namespace fewbit::golden {
namespace {

Error mismatch(const GoldenCase& c, std::size_t row, const std::string& got, const Json& wanted) {
  return Error{ErrorCode::inconsistent,
               "row " + std::to_string(row) + ": got " + got + ", expected " + wanted.dump(),
               c.name};
}

Result<const Json::Array*> rows_of(const GoldenCase& c) {
  const Json* rows = c.params->find("rows");
  if (rows == nullptr || rows->as_array() == nullptr || rows->as_array()->empty()) {
    return Error{ErrorCode::invalid_argument, "no rows", c.name};
  }
  return rows->as_array();
}

std::string text_of(const Json& row, std::string_view key) {
  const Json* value = row.find(key);
  return value != nullptr && value->as_string() != nullptr ? *value->as_string() : "";
}

std::vector<std::string> texts_of(const Json& list) {
  std::vector<std::string> out;
  if (list.as_array() == nullptr) return out;
  for (const Json& item : *list.as_array()) out.push_back(*item.as_string());
  return out;
}

Result<sglang::FusedMapping> mapping_of(const GoldenCase& c, const std::string& name) {
  const Json* all = c.params->find("fused_mappings");
  const Json* mapping = all != nullptr ? all->find(name) : nullptr;
  if (mapping == nullptr || mapping->as_object() == nullptr) {
    return Error{ErrorCode::invalid_argument, "no fused mapping " + name, c.name};
  }
  sglang::FusedMapping out;
  for (const auto& [fused, parts] : *mapping->as_object()) out.emplace_back(fused, texts_of(parts));
  return out;
}

}  // namespace

Result<Outputs> is_layer_skipped(const GoldenCase& c) {
  FEWBIT_TRY(const Json::Array* rows, rows_of(c));
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const Json& row = (*rows)[i];
    FEWBIT_TRY(const auto mapping, mapping_of(c, text_of(row, "fused_mapping")));
    const Json* ignored = row.find("ignored_layers");
    const auto result =
        sglang::is_layer_skipped(text_of(row, "prefix"), texts_of(*ignored), mapping);
    const Json* wanted = row.find("result");
    if (wanted == nullptr) {
      if (result) return mismatch(c, i, Json(*result).dump(), *row.find("error"));
    } else if (!result) {
      return mismatch(c, i, result.error().message(), *wanted);
    } else if (*result != wanted->as_bool()) {
      return mismatch(c, i, Json(*result).dump(), *wanted);
    }
  }
  return Outputs{};
}

Result<Outputs> module_path_match(const GoldenCase& c) {
  FEWBIT_TRY(const Json::Array* rows, rows_of(c));
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const Json& row = (*rows)[i];
    const bool match = sglang::module_path_match(text_of(row, "ignored"), text_of(row, "prefix"));
    if (match != row.find("match")->as_bool()) {
      return mismatch(c, i, Json(match).dump(), *row.find("match"));
    }
  }
  return Outputs{};
}

Result<Outputs> get_dynamic_override(const GoldenCase& c) {
  FEWBIT_TRY(const Json::Array* rows, rows_of(c));
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const Json& row = (*rows)[i];
    Json::Object dynamic;
    for (const Json& rule : *row.find("dynamic")->as_array()) {
      const Json::Array& pair = *rule.as_array();
      dynamic.emplace_back(*pair.at(0).as_string(), pair.at(1));
    }
    const std::string* key = row.find("key")->as_string();
    const auto result = sglang::get_dynamic_override(
        dynamic, text_of(row, "layer_name"),
        key != nullptr ? std::optional<std::string_view>(*key) : std::nullopt,
        *row.find("default"));
    if (!result) return result.error();
    if (result->dump() != row.find("result")->dump()) {
      return mismatch(c, i, result->dump(), *row.find("result"));
    }
  }
  return Outputs{};
}

}  // namespace fewbit::golden
