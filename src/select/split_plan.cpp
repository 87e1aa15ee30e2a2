// SPDX-License-Identifier: Apache-2.0
#include "select/split_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "core/checked.hpp"
#include "select/split_axis.hpp"

namespace fewbit {
namespace {

void add(SplitPlan& plan, SplitReason reason) {
  plan.fit = std::max(plan.fit, reason.fit);
  plan.reasons.push_back(std::move(reason));
}

// Matrices that are cut alike, over all layers and experts.
struct MatrixKind {
  SplitAxis axis;
  std::string role;
  std::uint64_t modules = 0;
};

using KindKey = std::tuple<Role, bool, std::int64_t, std::int64_t, bool>;
std::map<KindKey, MatrixKind> matrix_kinds(const Identified& identified) {
  std::map<KindKey, MatrixKind> kinds;
  for (const Module& module : identified.modules) {
    const SplitAxis axis = split_axis(module);
    if (axis.along == SplitAxis::Along::none) continue;
    const bool expert = module.expert != -1;
    MatrixKind& kind = kinds[{module.role, expert, axis.size, axis.unit, axis.whole_scales}];
    kind.axis = axis;
    kind.role = std::string(expert ? "expert " : "") + role_name(module.role);
    ++kind.modules;
  }
  return kinds;
}

void judge_matrices(const std::map<KindKey, MatrixKind>& kinds, SplitPlan& plan) {
  for (const auto& [key, kind] : kinds) {
    const Cut cut{kind.axis.size, kind.axis.unit, plan.ranks};
    const std::string what = fmt::format("{} ({} {})", kind.role, kind.modules,
                                         kind.modules == 1 ? "module" : "modules");
    const SplitFit fit = fit_of(cut);
    if (fit != SplitFit::even) {
      const bool rows = kind.axis.along == SplitAxis::Along::rows;
      add(plan,
          {fit, what,
           fmt::format("{} {}", rows ? "rows" : "columns", cut_text(cut, kind.axis.unit_name))});
    } else if (kind.axis.whole_scales && plan.ranks > 1) {
      add(plan, {fit, what, "groups follow the order of activations: every rank needs all scales"});
    }
  }
}

void judge_heads(const SplitSizes& sizes, SplitPlan& plan) {
  if (sizes.heads && *sizes.heads % plan.ranks != 0) {
    add(plan,
        {SplitFit::none, "attention", fmt::format("{} heads over {}", *sizes.heads, plan.ranks)});
  }
  if (!sizes.kv_heads || *sizes.kv_heads % plan.ranks == 0) return;
  if (plan.ranks % *sizes.kv_heads == 0) {
    add(plan, {SplitFit::even, "attention",
               fmt::format("{} key/value heads: each is held by {} ranks", *sizes.kv_heads,
                           plan.ranks / *sizes.kv_heads)});
  } else {
    add(plan, {SplitFit::none, "attention",
               fmt::format("{} key/value heads over {}", *sizes.kv_heads, plan.ranks)});
  }
}

// Engines pad the vocabulary to whole runs of 64 a rank; padded logits must not be sampled.
void judge_vocabulary(const SplitSizes& sizes, SplitPlan& plan) {
  constexpr std::int64_t run = 64;
  if (!sizes.vocab || *sizes.vocab % plan.ranks == 0) return;
  const auto padded = checked_round_up(*sizes.vocab, run * plan.ranks);
  if (!padded) return;
  add(plan,
      {SplitFit::even, "vocabulary",
       fmt::format("{} is padded to {}, {} a rank", *sizes.vocab, *padded, *padded / plan.ranks)});
}

std::int64_t expert_count(const Identified& identified, const SplitSizes& sizes) {
  std::int64_t count = 0;
  for (const Module& module : identified.modules) {
    if (module.layer < 0) continue;
    count = std::max({count, module.experts, module.expert + std::int64_t{1}});
  }
  return count > 0 ? sizes.experts.value_or(count) : 0;
}

}  // namespace

const char* split_fit_name(SplitFit fit) {
  switch (fit) {
    case SplitFit::even:
      return "even";
    case SplitFit::uneven:
      return "uneven";
    case SplitFit::none:
      return "none";
  }
  return "?";
}

SplitFit fit_of(const Cut& cut) {
  if (cut.size % cut.ranks == 0 && cut.size / cut.ranks % cut.unit == 0) return SplitFit::even;
  return ceil_div(cut.size, cut.unit) >= cut.ranks ? SplitFit::uneven : SplitFit::none;
}

CutPart part_of(const Cut& cut, int rank) {
  const std::int64_t units = ceil_div(cut.size, cut.unit);
  const std::int64_t each = units / cut.ranks;
  const std::int64_t more = units % cut.ranks;
  const auto begin = [&](std::int64_t r) {
    return std::min(cut.size, (r * each + std::min(r, more)) * cut.unit);
  };
  return {.begin = begin(rank), .end = begin(rank + 1)};
}

std::string cut_text(const Cut& cut, std::string_view unit_name) {
  const auto exact = [](std::int64_t a, std::int64_t b) {
    return fmt::format("{:g}", static_cast<double>(a) / static_cast<double>(b));
  };
  std::string text = fmt::format("{} / {} = {}", cut.size, cut.ranks, exact(cut.size, cut.ranks));
  if (cut.unit > 1) {
    text += fmt::format(", {} {} of {}",
                        exact(cut.size, checked_mul<std::int64_t>(cut.ranks, cut.unit).value_or(1)),
                        unit_name, cut.unit);
  }
  const std::int64_t units = ceil_div(cut.size, cut.unit);
  const std::int64_t more = units % cut.ranks;
  const std::int64_t each = units / cut.ranks;
  if (each == 0) {
    return text +
           fmt::format("; there are only {} {}", units, cut.unit > 1 ? unit_name : "of them");
  }
  if (more == 0) return text + "; the last one is short";
  return text + fmt::format("; whole {} dealt unevenly: {} ranks with {}, {} with {}",
                            cut.unit > 1 ? unit_name : "ones", more, each + 1, cut.ranks - more,
                            each);
}

std::vector<SplitPlan> tensor_splits(const Identified& identified, const SplitSizes& sizes,
                                     std::span<const int> ranks) {
  const auto kinds = matrix_kinds(identified);
  std::vector<SplitPlan> plans;
  for (const int count : ranks) {
    SplitPlan& plan = plans.emplace_back();
    plan.ranks = count;
    judge_matrices(kinds, plan);
    judge_heads(sizes, plan);
    judge_vocabulary(sizes, plan);
  }
  return plans;
}

std::vector<SplitPlan> expert_splits(const Identified& identified, const SplitSizes& sizes,
                                     std::span<const int> ranks) {
  const std::int64_t experts = expert_count(identified, sizes);
  std::vector<SplitPlan> plans;
  if (experts == 0) return plans;
  for (const int count : ranks) {
    SplitPlan& plan = plans.emplace_back();
    plan.ranks = count;
    const Cut cut{experts, 1, count};
    const SplitFit fit = fit_of(cut);
    if (fit != SplitFit::even) add(plan, {fit, "experts", cut_text(cut, "experts")});
  }
  return plans;
}

}  // namespace fewbit
