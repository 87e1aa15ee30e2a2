// SPDX-License-Identifier: Apache-2.0
// Typed look-up of a language model's keys in config.json.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// The keys of a model stand at the top level, or in text_config, llm_config or language_config of a
// multimodal one. A null value counts as absent. Wrong kinds and ranges are errors (corrupt) that
// name the key, what was found and what was expected.
class ConfigSection {
 public:
  using Keys = std::initializer_list<std::string_view>;

  // Borrows `root`.
  ConfigSection(const Json& root, std::string where);

  struct Entry {
    std::string_view key;
    const Json* value = nullptr;
    explicit operator bool() const { return value != nullptr; }
  };
  // The first of `keys` that any section has; keys before sections.
  Entry find(Keys keys) const;

  // An integer in [least, most]; empty when absent.
  Result<std::optional<std::int64_t>> integer(Keys keys, std::int64_t least,
                                              std::int64_t most) const;
  // As integer, but absence is an error.
  Result<std::int64_t> required_integer(Keys keys, std::int64_t least, std::int64_t most) const;
  Result<std::optional<double>> number(Keys keys) const;
  Result<std::optional<bool>> boolean(Keys keys) const;
  Result<std::optional<std::string>> string(Keys keys) const;
  // Empty list when absent.
  Result<std::vector<std::int64_t>> integers(Keys keys) const;

  const std::string& where() const { return where_; }
  // "key = value": `what` of an error.
  Error refuse(ErrorCode code, std::string_view key, const Json& value,
               std::string_view expected) const;

 private:
  std::vector<const Json*> sections_;
  std::string where_;
};

// A value in a message: shortened, so that a long list does not fill the screen.
std::string value_text(const Json& value);

}  // namespace fewbit
