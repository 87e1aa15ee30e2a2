// SPDX-License-Identifier: Apache-2.0
#include "scheme/match_budget.hpp"

#include <fmt/format.h>

#include "core/quote.hpp"

namespace fewbit {

void MatchBudget::note(std::string_view pattern, std::uint64_t steps) {
  const auto at = noted_.try_emplace(quote(pattern)).first;
  at->second += steps;
  if (at->second <= costliest_steps_) return;
  costliest_steps_ = at->second;
  costliest_ = at->first;
}

std::string MatchBudget::spent_text() const {
  std::string text = fmt::format(
      "the {} match steps that all patterns of a config have together are spent", most_);
  if (is_much(costliest_steps_)) {
    return text + fmt::format(", {} of them by pattern {}", costliest_steps_, costliest_);
  }
  text += " by the sum of all";
  if (costliest_.empty()) return text;
  return text + fmt::format(": the costliest, {}, took {}", costliest_, costliest_steps_);
}

std::string MatchBudget::remedy() const {
  if (is_much(costliest_steps_)) return "fewer steps for pattern " + costliest_;
  return "fewer patterns: each alone needs few steps";
}

}  // namespace fewbit
