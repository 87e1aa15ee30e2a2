// SPDX-License-Identifier: Apache-2.0
#include "golden/case.hpp"

namespace fewbit::golden {
namespace {

Error missing(const GoldenCase& c, std::string_view what, std::string_view name) {
  return Error{ErrorCode::not_found, std::string(what) + " '" + std::string(name) + "' is missing",
               c.name};
}

template <class T>
Result<T> required(const GoldenCase& c, std::string_view key, const std::optional<T>& value) {
  if (!value) return missing(c, "parameter", key);
  return *value;
}

const Json& param(const GoldenCase& c, std::string_view key) {
  static const Json null;
  const Json* found = c.params == nullptr ? nullptr : c.params->find(key);
  return found == nullptr ? null : *found;
}

}  // namespace

Result<Tensor> GoldenCase::input(const std::string& role) const {
  const auto it = inputs.find(role);
  if (it == inputs.end()) return missing(*this, "input", role);
  return it->second;
}

Result<std::int64_t> GoldenCase::int_param(std::string_view key) const {
  return required(*this, key, param(*this, key).as_int64());
}

Result<double> GoldenCase::number_param(std::string_view key) const {
  return required(*this, key, param(*this, key).as_double());
}

Result<bool> GoldenCase::bool_param(std::string_view key) const {
  return required(*this, key, param(*this, key).as_bool());
}

Result<std::string> GoldenCase::string_param(std::string_view key) const {
  const std::string* text = param(*this, key).as_string();
  if (text == nullptr) return missing(*this, "parameter", key);
  return *text;
}

}  // namespace fewbit::golden
