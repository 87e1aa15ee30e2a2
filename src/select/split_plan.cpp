// SPDX-License-Identifier: Apache-2.0
#include "select/split_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>

#include "core/checked.hpp"
#include "core/counted.hpp"
#include "scheme/reader.hpp"
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
  std::vector<std::string> roles;
  const char* along = "rows";
  bool expert = false;
  std::uint64_t modules = 0;
};

bool is_one_of(Role role, std::initializer_list<Role> roles) {
  return std::ranges::find(roles, role) != roles.end();
}

// Features between gate, up and down are cut at the same places: 1 of experts and dense layers, 2
// of shared experts; 0: other matrices.
int feed_forward(Role role) {
  if (is_one_of(role, {Role::gate_proj, Role::up_proj, Role::gate_up_proj, Role::down_proj})) {
    return 1;
  }
  const bool shared = is_one_of(role, {Role::shared_gate_proj, Role::shared_up_proj,
                                       Role::shared_gate_up_proj, Role::shared_down_proj});
  return shared ? 2 : 0;
}

using KindKey = std::tuple<int, bool, Role, std::int64_t, std::int64_t, bool>;
KindKey key_of(const Module& module, const SplitAxis& axis) {
  const bool expert = module.expert != -1;
  const int joined = feed_forward(module.role);
  if (joined != 0) return {joined, expert, Role::other, axis.size, 0, false};
  return {0, expert, module.role, axis.size, axis.unit, axis.whole_scales};
}

void add_to(MatrixKind& kind, const Module& module, const SplitAxis& axis) {
  const std::int64_t unit = std::lcm(kind.axis.unit, axis.unit);
  const bool scales = kind.axis.whole_scales || axis.whole_scales;
  if (kind.modules == 0 || unit == axis.unit) kind.axis = axis;
  kind.axis.unit = unit;
  kind.axis.whole_scales = scales;
  kind.expert = module.expert != -1;
  kind.along = feed_forward(module.role) != 0         ? "features"
               : axis.along == SplitAxis::Along::rows ? "rows"
                                                      : "columns";
  const std::string role = role_name(module.role);
  if (std::ranges::find(kind.roles, role) == kind.roles.end()) kind.roles.push_back(role);
  ++kind.modules;
}

std::map<KindKey, MatrixKind> matrix_kinds(const Identified& identified) {
  std::map<KindKey, MatrixKind> kinds;
  for (const Module& module : identified.modules) {
    const SplitAxis axis = split_axis(module);
    if (axis.along == SplitAxis::Along::none) continue;
    add_to(kinds[key_of(module, axis)], module, axis);
  }
  return kinds;
}

void judge_matrices(const std::map<KindKey, MatrixKind>& kinds, SplitPlan& plan) {
  for (const auto& [key, kind] : kinds) {
    const Cut cut{kind.axis.size, kind.axis.unit, plan.ranks};
    const std::string what =
        fmt::format("{}{} ({} {})", kind.expert ? "expert " : "", fmt::join(kind.roles, ", "),
                    kind.modules, kind.modules == 1 ? "module" : "modules");
    const SplitFit fit = fit_of(cut);
    if (kind.expert) plan.experts_fit = std::max(plan.experts_fit, fit);
    if (fit != SplitFit::even) {
      add(plan, {fit, what, fmt::format("{} {}", kind.along, cut_text(cut, kind.axis.unit_name))});
    } else if (kind.axis.whole_scales && plan.ranks > 1) {
      add(plan, {fit, what, "groups follow the order of activations: every rank needs all scales"});
    }
  }
}

// Matrices that would be cut, but can't be read: nobody knows where.
struct UnreadKind {
  std::vector<std::string> roles;
  std::uint64_t modules = 0;
  std::string why;  // of the first
};

std::map<bool, UnreadKind> unread_kinds(const Identified& identified) {
  std::map<bool, UnreadKind> kinds;  // by whether they are experts'
  for (const Module& module : identified.modules) {
    if (module.unreadable.empty() || module.unreadable == leftover_scale || !is_cut(module)) {
      continue;
    }
    UnreadKind& kind = kinds[module.expert != -1];
    if (kind.modules++ == 0) kind.why = module.unreadable;
    const std::string role = role_name(module.role);
    if (std::ranges::find(kind.roles, role) == kind.roles.end()) kind.roles.push_back(role);
  }
  return kinds;
}

void judge_unread(const std::map<bool, UnreadKind>& kinds, SplitPlan& plan) {
  if (plan.ranks == 1) return;
  for (const auto& [expert, kind] : kinds) {
    if (expert) plan.experts_fit = SplitFit::none;
    add(plan, {SplitFit::none,
               fmt::format("{}{} ({})", expert ? "expert " : "", fmt::join(kind.roles, ", "),
                           counted(kind.modules, "module")),
               "not known of what can't be read: " + kind.why});
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

std::vector<int> examined_ranks(std::int64_t experts) {
  std::vector<int> ranks;
  for (int count = 1; count <= most_ranks; ++count) ranks.push_back(count);
  constexpr std::int64_t most_experts = 1 << 16;
  for (std::int64_t count = most_ranks + 1; count <= std::min(experts, most_experts); ++count) {
    if (experts % count == 0) ranks.push_back(static_cast<int>(count));
  }
  return ranks;
}

std::string ranks_text(std::span<const int> ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - i < 3) end = i + 1;
    if (!text.empty()) text += ", ";
    text += std::to_string(ranks[i]);
    if (end - i >= 3) text += fmt::format(" to {}", ranks[end - 1]);
    i = end;
  }
  return text;
}

std::string legal_ranks_text(std::int64_t size, std::int64_t unit, Dealing dealing) {
  std::vector<int> legal;
  constexpr std::int64_t most_listed = 1 << 16;
  const int most = static_cast<int>(std::min(ceil_div(size, unit), most_listed));
  for (int count = 1; count <= most; ++count) {
    const Cut cut{.size = size, .unit = unit, .ranks = count};
    const bool whole = dealing != Dealing::even || fit_of(cut) == SplitFit::even;
    if (whole && can_deal(cut, dealing)) legal.push_back(count);
  }
  return ranks_text(legal);
}

std::string undealt_text(const Cut& cut, Dealing dealing, std::string_view parts) {
  const std::int64_t units = ceil_div(cut.size, cut.unit);
  const std::string runs =
      cut.unit > 1 ? fmt::format("they are {} of {}, ", counted(units, "run"), cut.unit) : "";
  const std::string legal = legal_ranks_text(cut.size, cut.unit, dealing);
  const std::string what =
      fmt::format("{} can't share {} {}", counted(cut.ranks, "rank"), cut.size, parts);
  if (dealing == Dealing::whole_units) {
    return fmt::format("{}: {}at least one a rank; legal: {}", what, runs, legal);
  }
  if (cut.ranks < 1 || cut.size % cut.ranks == 0) {
    return fmt::format("{}: {}{} a rank, which leaves none for the last; legal: {}", what, runs,
                       ceil_div<std::int64_t>(units, std::max(cut.ranks, 1)), legal);
  }
  return fmt::format("{} equally: {} / {} = {:g}; legal{}: {}", what, cut.size, cut.ranks,
                     static_cast<double>(cut.size) / cut.ranks,
                     cut.unit > 1 ? fmt::format(", in whole runs of {}", cut.unit) : "", legal);
}

SplitFit fit_of(const Cut& cut) {
  if (cut.ranks == 1) return SplitFit::even;
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

bool can_deal(const Cut& cut, Dealing dealing) {
  if (cut.ranks < 1) return false;
  if (dealing == Dealing::whole_units) return fit_of(cut) != SplitFit::none;
  if (cut.size % cut.ranks != 0) return false;
  const std::int64_t units = ceil_div(cut.size, cut.unit);
  return dealing == Dealing::even ||
         (cut.ranks - 1) * ceil_div<std::int64_t>(units, cut.ranks) < units;
}

CutPart dealt_part(const Cut& cut, Dealing dealing, int rank) {
  if (dealing == Dealing::whole_units) return part_of(cut, rank);
  const std::int64_t each = dealt_size(cut, dealing, rank);
  return {.begin = rank * each, .end = std::min(cut.size, (rank + 1) * each)};
}

std::int64_t dealt_size(const Cut& cut, Dealing dealing, int rank) {
  const std::int64_t units = ceil_div(cut.size, cut.unit);
  switch (dealing) {
    case Dealing::even:
      return cut.size / cut.ranks;
    case Dealing::padded_units:
      return std::min(cut.size, ceil_div<std::int64_t>(units, cut.ranks) * cut.unit);
    case Dealing::whole_units:
      break;
  }
  const CutPart part = part_of(cut, rank);
  return part.end - part.begin;
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
    return text + fmt::format("; there {} only {} of them", units == 1 ? "is" : "are", units);
  }
  if (more == 0) return text + "; the last one is short";
  return text + fmt::format("; whole {} dealt unevenly: {} with {}, {} with {}",
                            cut.unit > 1 ? unit_name : "ones", counted(more, "rank"), each + 1,
                            cut.ranks - more, each);
}

std::int64_t expert_count(const Identified& identified, const SplitSizes& sizes) {
  std::int64_t count = 0;
  for (const Module& module : identified.modules) {
    if (module.layer < 0 || module.expert == -1) continue;
    count = std::max({count, module.experts, module.expert + std::int64_t{1}});
  }
  return count > 0 ? sizes.experts.value_or(count) : 0;
}

std::vector<SplitPlan> tensor_splits(const Identified& identified, const SplitSizes& sizes,
                                     std::span<const int> ranks) {
  const auto kinds = matrix_kinds(identified);
  const auto unread = unread_kinds(identified);
  std::vector<SplitPlan> plans;
  for (const int count : ranks) {
    SplitPlan& plan = plans.emplace_back();
    plan.ranks = count;
    judge_matrices(kinds, plan);
    judge_unread(unread, plan);
    judge_heads(sizes, plan);
    judge_vocabulary(sizes, plan);
    std::ranges::stable_sort(plan.reasons, std::greater{}, &SplitReason::fit);
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
    plan.experts_fit = fit;
    if (fit != SplitFit::even) add(plan, {fit, "experts", cut_text(cut, "experts")});
  }
  return plans;
}

}  // namespace fewbit
