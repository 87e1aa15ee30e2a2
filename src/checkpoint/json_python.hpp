// SPDX-License-Identifier: Apache-2.0
// What Python's json module reads and writes beyond RFC 8259: numbers that are not finite.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/json.hpp"

namespace fewbit {

// A text of the same length in which strings stand for Infinity, -Infinity, NaN and numbers out of
// the range of a double (1e400), so that every other byte keeps its place.
class PythonNumbers {
 public:
  explicit PythonNumbers(std::string_view text);

  std::string_view strict_text() const { return literals_.empty() ? source_ : copy_; }
  // The number whose stand-in ends before byte `end`; empty when none does.
  std::optional<Json::Number> ending_at(std::size_t end) const;

 private:
  struct Literal {
    std::size_t end;
    Json::Number number;
  };
  void add(std::size_t at, std::size_t length, double value);

  std::string_view source_;
  std::string copy_;
  std::vector<Literal> literals_;  // by end
};

}  // namespace fewbit
