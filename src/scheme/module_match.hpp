// SPDX-License-Identifier: Apache-2.0
// How the patterns of quantization configs are matched against module names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "fewbit/result.hpp"
#include "scheme/match_budget.hpp"

namespace fewbit {

class PythonRegex;

// Shell wildcards as Python's fnmatch.fnmatchcase: * also matches dots, ? is one character, [ab],
// [a-c] and [!a] are sets; an unclosed [ is itself. Adds the characters compared to `compared`.
bool glob_match(std::string_view text, std::string_view pattern, std::uint64_t& compared);
bool glob_match(std::string_view text, std::string_view pattern);

// Whether `entry` is a run of whole dotted components of `module`: "mlp.gate" is one of
// "model.layers.0.mlp.gate", and not of "model.layers.0.mlp.gate_proj". Trailing dots of both are
// dropped first.
bool component_match(std::string_view module, std::string_view entry);

// What an entry means.
enum class PatternKind {
  exact,       // the whole name
  components,  // component_match
  substring,   // anywhere in the name
  within,      // the name is somewhere in the entry, from the start of a component
  glob,        // glob_match on the whole name
  regex,       // Python's re.match: anchored at the start, not at the end
};
const char* pattern_kind_name(PatternKind kind);

class ModulePattern {
 public:
  // Errors of a regex: unsupported (a construct, by name), corrupt, limit (length).
  // Of a budget of its own without one that others share.
  static Result<ModulePattern> compile(PatternKind kind, std::string_view text,
                                       const std::string& where,
                                       std::shared_ptr<MatchBudget> budget = nullptr);
  // Error limit when a regex backtracks without bound on this name, or the budget is spent.
  Result<bool> matches(std::string_view module, MatchBudget& budget) const;

  PatternKind kind() const { return kind_; }
  const std::string& text() const { return text_; }
  // That it took so far, to be compiled and to match.
  std::uint64_t steps() const { return steps_; }

 private:
  Result<bool> match(std::string_view module, std::uint64_t& steps) const;
  void charge(MatchBudget& budget, std::uint64_t steps) const;

  PatternKind kind_ = PatternKind::exact;
  std::string text_;
  std::string where_;
  std::shared_ptr<const PythonRegex> regex_;
  mutable std::uint64_t steps_ = 0;
  mutable std::uint64_t unnoted_ = 0;  // of them, not yet noted in the budget
};

}  // namespace fewbit
