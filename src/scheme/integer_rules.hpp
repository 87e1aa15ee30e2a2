// SPDX-License-Identifier: Apache-2.0
// Rules of GPTQ (`dynamic`) and AutoRound (`extra_config`) that change the scheme of single
// modules.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/scheme.hpp"
#include "scheme/literal_index.hpp"
#include "scheme/module_match.hpp"

namespace fewbit {

// Of one module, or of all that no rule names. Empty: not stated.
struct IntegerSpec {
  std::optional<std::int64_t> bits;
  std::optional<std::int64_t> group_size;  // 0 = whole rows (-1 in the file)
  std::optional<Granularity> block;  // AutoRound's FP8: [rows, columns], or one scale a matrix (0)
  std::optional<bool> symmetric;
  std::optional<bool> act_order;
  std::string data_type;  // AutoRound's name of the codes: "int", "mx_fp"; lower case

  bool empty() const {
    return !bits && !group_size && !block && !symmetric && !act_order && data_type.empty();
  }
  // What `over` states counts, the rest stays.
  IntegerSpec with(const IntegerSpec& over) const;
};

struct IntegerRule {
  std::string text;       // as in the file
  bool excludes = false;  // the module stays 16-bit
  IntegerSpec spec;
};

class IntegerRules {
 public:
  // A module with exactly this name; outranks patterns.
  void add_name(IntegerRule rule);
  // Python's re.match (`anchored`) or re.search; the first one added that matches counts.
  enum class Anchor { start, none };
  // Errors, by which the rule is dropped: of the regular expression; limit after most_patterns.
  static constexpr std::size_t most_patterns = 4096;  // each is tried on every module
  Result<void> add_pattern(IntegerRule rule, std::string_view regex, Anchor anchor,
                           const std::string& where);
  // With other lists (Declaration::budget); nullptr: it has its own.
  void share(std::shared_ptr<MatchBudget> budget) {
    if (budget != nullptr) budget_ = std::move(budget);
  }
  // nullptr: no rule for this module.
  const IntegerRule* find(std::string_view module) const;
  // Matches of patterns that were really tried.
  std::uint64_t tries() const { return tries_; }
  // Patterns that backtracked without bound on some module; they are not used after that.
  const std::vector<Error>& limits() const { return limits_; }
  // A finding of those for which others left no steps; empty when there is none.
  std::optional<Finding> starved() const;

 private:
  struct Pattern {
    std::string where;
    ModulePattern pattern;
    std::size_t rule = 0;
    mutable bool usable = true;
  };
  std::optional<std::size_t> find_pattern(std::string_view module) const;

  std::vector<IntegerRule> rules_;
  std::unordered_map<std::string, std::size_t> names_;
  std::vector<Pattern> patterns_;
  std::shared_ptr<MatchBudget> budget_ = std::make_shared<MatchBudget>();
  mutable std::vector<std::size_t> starved_;              // patterns for which others left no steps
  mutable std::vector<Error> limits_;                     // found while matching
  mutable std::shared_ptr<const LiteralIndex> literals_;  // of the patterns, made when first needed
  mutable std::unordered_map<std::string, std::optional<std::size_t>> found_;
  mutable std::uint64_t tries_ = 0;
};

}  // namespace fewbit
