// SPDX-License-Identifier: Apache-2.0
#include "splits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"

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

Json plan_json(const SplitPlan& plan) {
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
  return entry;
}

Json plans_json(const std::vector<SplitPlan>& plans) {
  Json list{Json::Array{}};
  for (const SplitPlan& plan : plans) list.push_back(plan_json(plan));
  return list;
}

// The same parts with the same fits.
bool same_verdict(const SplitPlan& a, const SplitPlan& b) {
  return a.fit == b.fit && a.experts_fit == b.experts_fit &&
         std::ranges::equal(a.reasons, b.reasons, [](const SplitReason& x, const SplitReason& y) {
           return x.fit == y.fit && x.what == y.what;
         });
}

Json group_json(const SplitPlan& first, const std::vector<int>& ranks) {
  Json parts{Json::Array{}};
  for (const SplitReason& reason : first.reasons) {
    Json part;
    part.set("fit", split_fit_name(reason.fit));
    part.set("what", reason.what);
    parts.push_back(part);
  }
  Json entry;
  entry.set("ranks", list_json(ranks));
  entry.set("fit", split_fit_name(first.fit));
  entry.set("experts_fit", split_fit_name(first.experts_fit));
  entry.set("parts", parts);
  return entry;
}

Json grouped_json(const std::vector<SplitPlan>& plans) {
  std::vector<Line> groups;
  for (const SplitPlan& plan : plans) {
    const auto known = std::ranges::find_if(
        groups, [&](const Line& group) { return same_verdict(*group.first, plan); });
    if (known == groups.end()) {
      groups.push_back({&plan, {plan.ranks}});
    } else {
      known->ranks.push_back(plan.ranks);
    }
  }
  Json list{Json::Array{}};
  for (const Line& group : groups) list.push_back(group_json(*group.first, group.ranks));
  return list;
}

Json asked_json(const std::vector<SplitPlan>& plans, int ranks) {
  const auto plan = std::ranges::find(plans, ranks, &SplitPlan::ranks);
  return plan == plans.end() ? Json(nullptr) : plan_json(*plan);
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

Json verdicts_json(const Splits& splits, int tensor, int expert) {
  Json out;
  out.set("tensor_parallel", grouped_json(splits.tensor));
  out.set("expert_parallel", grouped_json(splits.expert));
  out.set("asked_tensor_parallel", asked_json(splits.tensor, tensor));
  out.set("asked_expert_parallel", asked_json(splits.expert, expert));
  return out;
}

Json splits_json(const Splits& splits) {
  Json out;
  out.set("tensor_parallel", plans_json(splits.tensor));
  out.set("expert_parallel", plans_json(splits.expert));
  return out;
}

}  // namespace fewbit::cli
