// SPDX-License-Identifier: Apache-2.0
#include "scheme/integer_rules.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/quote.hpp"
#include "scheme/fused_names.hpp"

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

void IntegerRules::add(IntegerRule rule, std::string text, const std::string& where) {
  lists_.reset();
  found_.clear();
  entries_.push_back({std::move(text), where});
  rules_.push_back(std::move(rule));
}

void IntegerRules::add_name(IntegerRule rule, const std::string& where) {
  std::string text = rule.text;
  add(std::move(rule), std::move(text), where);
}

Result<void> IntegerRules::add_pattern(IntegerRule rule, std::string_view regex,
                                       const std::string& where) {
  if (patterns_ >= most_patterns) {
    return Error{ErrorCode::limit,
                 fmt::format("more than {} rules that are patterns", most_patterns), where};
  }
  const std::string text =
      dialect_.searches ? ".*?(?:" + std::string(regex) + ")" : std::string(regex);
  const auto usable = ModulePattern::compile(PatternKind::regex, text, where, budget_);
  if (!usable) return usable.error();
  ++patterns_;
  add(std::move(rule), std::string(regex), where);
  return {};
}

const ModuleRules& IntegerRules::lists() const {
  if (lists_ == nullptr) lists_ = std::make_shared<const ModuleRules>(dialect_, entries_, budget_);
  return *lists_;
}

const IntegerRule* IntegerRules::rule_of(const ModuleRules::Verdict& verdict) const {
  if (verdict.entry == nullptr) return nullptr;
  return &rules_[static_cast<std::size_t>(verdict.entry - lists().entries().data())];
}

const IntegerRules::Found& IntegerRules::found(std::string_view module) const {
  const auto [at, is_new] = found_.try_emplace(std::string(module));
  if (is_new && !rules_.empty()) at->second = look_up(module);
  return at->second;
}

IntegerRules::Found IntegerRules::look_up(std::string_view module) const {
  const ModuleRules::Verdict verdict = lists().judge(module);
  const IntegerRule* rule = rule_of(verdict);
  if (rule == nullptr || verdict.listed_parts.empty()) return {rule, false};
  // By its parts, each of which has a rule of its own or none.
  std::size_t excluded = 0;
  bool same = true;
  const std::vector<std::string> parts = fused_parts(module.substr(module.rfind('.') + 1));
  for (const std::string& part : parts) {
    const IntegerRule* other = rule_of(lists().judge(with_last_component(module, part)));
    excluded += other != nullptr && other->excludes ? 1 : 0;
    same = same && other != nullptr && other->excludes == rule->excludes &&
           (rule->excludes || other->spec == rule->spec);
  }
  return {same ? rule : nullptr, excluded > 0 && excluded < parts.size()};
}

std::vector<Error> IntegerRules::limits() const {
  std::vector<Error> out;
  if (lists_ == nullptr) return out;
  for (const auto& entry : lists_->limits()) out.push_back(entry.second);
  return out;
}

std::optional<Finding> IntegerRules::starved() const {
  if (lists_ == nullptr || lists_->starved().empty()) return std::nullopt;
  const std::size_t first = *lists_->starved().begin();
  return Finding{Level::warning, "pattern-limit", entries_[first].source,
                 fmt::format("{} of {} patterns are not tried on every name, {} for one: {}",
                             lists_->starved().size(), patterns_, quote(rules_[first].text),
                             budget_->spent_text()),
                 budget_->remedy()};
}

}  // namespace fewbit
