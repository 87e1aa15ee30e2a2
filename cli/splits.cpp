// SPDX-License-Identifier: Apache-2.0
#include "splits.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fewbit::cli {
namespace {

// Reasons of one line on the page; --json has all.
constexpr std::size_t most_reasons = 3;

std::string reasons_text(const SplitPlan& plan) {
  std::string text;
  for (std::size_t i = 0; i < plan.reasons.size(); ++i) {
    const SplitReason& reason = plan.reasons[i];
    if (i == most_reasons) {
      text += fmt::format("\n      and {} more", plan.reasons.size() - i);
      break;
    }
    text += fmt::format("\n      {}: {}", reason.what, reason.why);
  }
  return text;
}

std::string verdict(const SplitPlan& plan) {
  switch (plan.fit) {
    case SplitFit::even:
      return "evenly";
    case SplitFit::uneven:
      return "only unevenly, in whole groups and experts; engines that cut evenly refuse";
    case SplitFit::none:
      return plan.experts_fit == SplitFit::none
                 ? "not"
                 : fmt::format("not the whole model; its experts alone {}",
                               plan.experts_fit == SplitFit::even ? "evenly" : "unevenly");
  }
  return "?";
}

// Numbers of ranks with one verdict share a line; the reasons are those of the first.
struct Line {
  const SplitPlan* first = nullptr;
  std::vector<int> ranks;
};

std::vector<Line> lines_of(const std::vector<SplitPlan>& plans) {
  std::vector<Line> lines;
  for (const SplitPlan& plan : plans) {
    const auto alike = [&](const Line& line) {
      return line.first->fit == plan.fit && line.first->experts_fit == plan.experts_fit &&
             line.first->reasons.empty() == plan.reasons.empty();
    };
    auto line = std::ranges::find_if(lines, alike);
    if (line == lines.end()) line = lines.insert(lines.end(), {&plan, {}});
    line->ranks.push_back(plan.ranks);
  }
  return lines;
}

std::string lines_text(const char* name, const std::vector<SplitPlan>& plans) {
  std::string text;
  for (const Line& line : lines_of(plans)) {
    text += fmt::format("  {} {}  {}", name, ranks_text(line.ranks), verdict(*line.first));
    const bool several = line.ranks.size() > 1 && !line.first->reasons.empty();
    if (several) text += fmt::format("; of {}:", line.first->ranks);
    text += reasons_text(*line.first) + "\n";
  }
  return text;
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
    entry.set("experts_fit", split_fit_name(plan.experts_fit));
    entry.set("reasons", reasons);
    list.push_back(entry);
  }
  return list;
}

}  // namespace

Splits plan_splits(const Checkpoint& checkpoint, const Identified& identified) {
  const SplitSizes sizes = read_split_sizes(checkpoint);
  return {tensor_splits(identified, sizes, examined_ranks()),
          expert_splits(identified, sizes, examined_ranks(expert_count(identified, sizes)))};
}

std::string splits_text(const Splits& splits) {
  return "splits over 1 to 64 ranks: tensor parallel (TP), expert parallel (EP; also the divisors "
         "of the experts)\n" +
         lines_text("TP", splits.tensor) + lines_text("EP", splits.expert);
}

std::string split_line(const char* name, const std::vector<SplitPlan>& plans, int ranks) {
  const auto plan = std::ranges::find(plans, ranks, &SplitPlan::ranks);
  if (ranks == 1 || plan == plans.end()) return "";
  return fmt::format("whole model, {} {}: {}{}\n", name, ranks, verdict(*plan),
                     reasons_text(*plan));
}

Json splits_json(const Splits& splits) {
  Json out;
  out.set("tensor_parallel", plans_json(splits.tensor));
  out.set("expert_parallel", plans_json(splits.expert));
  return out;
}

}  // namespace fewbit::cli
