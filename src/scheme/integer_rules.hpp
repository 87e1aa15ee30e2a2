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
#include "scheme/module_rules.hpp"

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
  bool operator==(const IntegerSpec&) const = default;
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
  // How names and patterns are read (rule_dialect; GPTQ's where nothing is said), and a budget with
  // other lists (Declaration::budget; nullptr: it has its own). Before any rule is added.
  void read_as(const Dialect& dialect, std::shared_ptr<MatchBudget> budget) {
    dialect_ = dialect;
    if (budget != nullptr) budget_ = std::move(budget);
  }
  // A module of this name; outranks patterns.
  void add_name(IntegerRule rule, const std::string& where);
  // The first one added that matches counts. Errors, by which the rule is dropped: of the regular
  // expression; limit after most_patterns.
  static constexpr std::size_t most_patterns = 4096;  // each is tried on every module
  Result<void> add_pattern(IntegerRule rule, std::string_view regex, const std::string& where);
  // Read as ModuleRules::judge does. nullptr: no rule for this module, or rules that differ for
  // parts that are stored as one.
  const IntegerRule* find(std::string_view module) const { return found(module).rule; }
  // Whether rules exclude some parts of what is stored as one, and others not.
  bool excludes_partly(std::string_view module) const { return found(module).partly; }
  // Matches of patterns that were really tried.
  std::uint64_t tries() const { return lists_ == nullptr ? 0 : lists_->tries(); }
  // Patterns that backtracked without bound on some module; they are not used after that.
  std::vector<Error> limits() const;
  // A finding of those for which others left no steps; empty when there is none.
  std::optional<Finding> starved() const;

 private:
  struct Found {
    const IntegerRule* rule = nullptr;
    bool partly = false;
  };
  const Found& found(std::string_view module) const;
  Found look_up(std::string_view module) const;
  const IntegerRule* rule_of(const ModuleRules::Verdict& verdict) const;
  const ModuleRules& lists() const;
  void add(IntegerRule rule, std::string text, const std::string& where);

  Dialect dialect_ = rule_dialect(Producer::gptq);
  std::vector<IntegerRule> rules_;
  std::vector<PatternEntry> entries_;  // of the rules, in their order
  std::size_t patterns_ = 0;
  std::shared_ptr<MatchBudget> budget_ = std::make_shared<MatchBudget>();
  mutable std::shared_ptr<const ModuleRules> lists_;  // made when first needed
  mutable std::unordered_map<std::string, Found> found_;
};

}  // namespace fewbit
