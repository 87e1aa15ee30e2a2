// SPDX-License-Identifier: Apache-2.0
// Regular expressions of quantization configs: Python's re.match on module names.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fewbit/result.hpp"

namespace fewbit {

// Rewrites a pattern of Python's re module (str, Unicode) for PCRE2 (UTF, UCP) so that both match
// the same names. Error unsupported names a construct that Python refuses or that could differ.
Result<std::string> translate_python_regex(std::string_view pattern, const std::string& where);

class MatchBudget;

class PythonRegex {
 public:
  // Errors: unsupported (construct, by name), corrupt (PCRE2's message and place), limit (length;
  // the budget is spent). Compiling is paid from the budget, and so is the memory of the compiled
  // pattern: where there is no room, it is compiled again for every match. nullptr: one of its own.
  static Result<PythonRegex> compile(std::string_view pattern, const std::string& where,
                                     std::shared_ptr<MatchBudget> budget = nullptr);
  PythonRegex(PythonRegex&&) noexcept;
  PythonRegex& operator=(PythonRegex&&) noexcept;
  ~PythonRegex();

  // re.match: anchored at the start, not at the end. Error limit when the pattern backtracks
  // without bound on this text; corrupt when the text is not UTF-8.
  Result<bool> match(std::string_view text) const;
  // The same, and adds an upper bound of the steps that it took to `steps`.
  Result<bool> match(std::string_view text, std::uint64_t& steps) const;

 private:
  struct State;
  explicit PythonRegex(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace fewbit
