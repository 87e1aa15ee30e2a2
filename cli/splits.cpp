// SPDX-License-Identifier: Apache-2.0
#include "splits.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fewbit::cli {
namespace {

constexpr int rank_counts[] = {1, 2, 4, 8, 16, 32};
// Reasons of one size on the page; --json has all.
constexpr std::size_t most_reasons = 3;

std::string reasons_text(const SplitPlan& plan) {
  if (plan.reasons.size() == 1) {
    return fmt::format("; {}: {}", plan.reasons[0].what, plan.reasons[0].why);
  }
  std::string text;
  for (std::size_t i = 0; i < plan.reasons.size(); ++i) {
    const SplitReason& reason = plan.reasons[i];
    if (i == most_reasons) {
      text += fmt::format("\n          and {} more", plan.reasons.size() - i);
      break;
    }
    text += fmt::format("\n          {}: {}", reason.what, reason.why);
  }
  return text;
}

const char* verdict(const SplitPlan& plan) {
  switch (plan.fit) {
    case SplitFit::even:
      return "evenly";
    case SplitFit::uneven:
      return "whole groups only unevenly; engines that cut evenly refuse";
    case SplitFit::none:
      return "not";
  }
  return "?";
}

// What holds for more ranks as it did for fewer.
bool same_matrices(const SplitPlan& a, const SplitPlan& b) {
  return a.fit == b.fit &&
         std::ranges::equal(a.reasons, b.reasons, {}, &SplitReason::what, &SplitReason::what);
}

std::string lines_of(const char* name, const std::vector<SplitPlan>& plans) {
  std::string easy;
  std::string rest;
  const SplitPlan* shown = nullptr;
  for (const SplitPlan& plan : plans) {
    if (plan.reasons.empty()) {
      easy += fmt::format("{}{}", easy.empty() ? "" : ", ", plan.ranks);
    } else if (shown != nullptr && plan.fit != SplitFit::even && same_matrices(*shown, plan)) {
      rest += fmt::format("  {} {:<4}  {}, as {} {}\n", name, plan.ranks, verdict(plan), name,
                          shown->ranks);
    } else {
      shown = &plan;
      rest +=
          fmt::format("  {} {:<4}  {}{}\n", name, plan.ranks, verdict(plan), reasons_text(plan));
    }
  }
  std::string text;
  if (!easy.empty()) text = fmt::format("  {} {}  evenly\n", name, easy);
  return text + rest;
}

Json plans_json(const std::vector<SplitPlan>& plans) {
  Json list{Json::Array{}};
  for (const SplitPlan& plan : plans) {
    Json reasons{Json::Array{}};
    for (const SplitReason& reason : plan.reasons) {
      Json entry;
      entry.set("fit", split_fit_name(reason.fit));
      entry.set("what", reason.what);
      entry.set("why", reason.why);
      reasons.push_back(entry);
    }
    Json entry;
    entry.set("ranks", plan.ranks);
    entry.set("fit", split_fit_name(plan.fit));
    entry.set("reasons", reasons);
    list.push_back(entry);
  }
  return list;
}

}  // namespace

Splits plan_splits(const Checkpoint& checkpoint, const Identified& identified) {
  const SplitSizes sizes = read_split_sizes(checkpoint);
  return {tensor_splits(identified, sizes, rank_counts),
          expert_splits(identified, sizes, rank_counts)};
}

std::string splits_text(const Splits& splits) {
  return "splits over ranks: tensor parallel (TP), expert parallel (EP)\n" +
         lines_of("TP", splits.tensor) + lines_of("EP", splits.expert);
}

Json splits_json(const Splits& splits) {
  Json out;
  out.set("tensor_parallel", plans_json(splits.tensor));
  out.set("expert_parallel", plans_json(splits.expert));
  return out;
}

}  // namespace fewbit::cli
