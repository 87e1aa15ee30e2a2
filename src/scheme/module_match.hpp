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

// Steps that all patterns of a checkpoint's configs may take together, to be compiled and on all
// its names: each pattern alone is bounded on each name, which many patterns and names make too
// much. Memory, too.
class MatchBudget {
 public:
  static constexpr std::uint64_t most_steps = std::uint64_t{1} << 27;  // a second or two

  explicit MatchBudget(std::uint64_t most = most_steps) : most_(most) {}
  void spend(std::uint64_t steps) { spent_ += steps; }
  std::uint64_t steps() const { return spent_; }
  // Whether a pattern that took so many has a part in it that they are spent.
  bool is_much(std::uint64_t steps) const { return steps >= most_ / 1024; }
  bool spent() const { return spent_ >= most_; }
  std::uint64_t most() const { return most_; }

  // Bytes of compiled patterns that are kept for the next match.
  static constexpr std::size_t most_kept_bytes = std::size_t{12} << 20;
  bool has_room(std::size_t bytes) const { return bytes <= most_kept_bytes - kept_bytes_; }
  // At most what there is room for.
  std::size_t keep(std::size_t bytes) {
    const std::size_t kept = std::min(bytes, most_kept_bytes - kept_bytes_);
    kept_bytes_ += kept;
    return kept;
  }
  void release(std::size_t bytes) { kept_bytes_ -= bytes; }

 private:
  std::uint64_t most_;
  std::uint64_t spent_ = 0;
  std::size_t kept_bytes_ = 0;
};

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

  PatternKind kind_ = PatternKind::exact;
  std::string text_;
  std::string where_;
  std::shared_ptr<const PythonRegex> regex_;
  mutable std::uint64_t steps_ = 0;
};

}  // namespace fewbit
