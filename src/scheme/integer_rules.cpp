// SPDX-License-Identifier: Apache-2.0
#include "scheme/integer_rules.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/quote.hpp"
#include "scheme/required_literal.hpp"

namespace fewbit {

IntegerSpec IntegerSpec::with(const IntegerSpec& over) const {
  IntegerSpec out = *this;
  if (over.bits) out.bits = over.bits;
  if (over.group_size || over.block) {
    out.group_size = over.group_size;
    out.block = over.block;
  }
  if (over.symmetric) out.symmetric = over.symmetric;
  if (over.act_order) out.act_order = over.act_order;
  if (!over.data_type.empty()) out.data_type = over.data_type;
  return out;
}

void IntegerRules::add_name(IntegerRule rule) {
  names_.try_emplace(rule.text, rules_.size());
  rules_.push_back(std::move(rule));
}

Result<void> IntegerRules::add_pattern(IntegerRule rule, std::string_view regex, Anchor anchor,
                                       const std::string& where) {
  if (patterns_.size() >= most_patterns) {
    return Error{ErrorCode::limit,
                 fmt::format("more than {} rules that are patterns", most_patterns), where};
  }
  const std::string text =
      anchor == Anchor::start ? std::string(regex) : ".*?(?:" + std::string(regex) + ")";
  FEWBIT_TRY(ModulePattern pattern,
             ModulePattern::compile(PatternKind::regex, text, where, budget_));
  literals_.reset();
  found_.clear();
  patterns_.push_back({where, std::move(pattern), rules_.size()});
  rules_.push_back(std::move(rule));
  return {};
}

const IntegerRule* IntegerRules::find(std::string_view module) const {
  const std::string name(module);
  const auto named = names_.find(name);
  if (named != names_.end()) return &rules_[named->second];
  if (patterns_.empty()) return nullptr;
  const auto [at, is_new] = found_.try_emplace(name);
  if (is_new) at->second = find_pattern(module);
  return at->second ? &rules_[*at->second] : nullptr;
}

std::optional<Finding> IntegerRules::starved() const {
  if (starved_.empty()) return std::nullopt;
  const Pattern& first = patterns_[starved_.front()];
  return Finding{
      Level::warning, "pattern-limit", first.where,
      fmt::format("{} of {} patterns are not tried on every name, {} for one: {}", starved_.size(),
                  patterns_.size(), quote(rules_[first.rule].text), budget_->spent_text()),
      budget_->remedy()};
}

// Patterns in their order, without those whose literal the name lacks.
std::optional<std::size_t> IntegerRules::find_pattern(std::string_view module) const {
  if (literals_ == nullptr) {
    std::vector<std::string> literals;
    literals.reserve(patterns_.size());
    for (const Pattern& each : patterns_) {
      literals.push_back(required_literal(PatternKind::regex, each.pattern.text()));
    }
    literals_ = std::make_shared<const LiteralIndex>(std::move(literals));
  }
  for (const std::size_t number : literals_->candidates(module)) {
    const Pattern& each = patterns_[number];
    if (!each.usable) continue;
    ++tries_;
    const Result<bool> hit = each.pattern.matches(module, *budget_);
    if (hit && *hit) return each.rule;
    if (hit || hit.error().code != ErrorCode::limit) continue;
    each.usable = false;
    const bool took_much = !budget_->spent() || budget_->is_much(each.pattern.steps());
    if (took_much) {
      limits_.push_back(hit.error());
    } else {
      starved_.push_back(number);
    }
  }
  return std::nullopt;
}

}  // namespace fewbit
