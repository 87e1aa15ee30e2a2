// SPDX-License-Identifier: Apache-2.0
#include "select/rank_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/checked.hpp"
#include "select/select.hpp"
#include "select/split_axis.hpp"

namespace fewbit {
namespace {

Result<std::int64_t> first_share(const MoeProblem& whole, const char* name, const Cut& cut,
                                 Dealing dealing) {
  const bool even = dealing == Dealing::even;
  const bool legal =
      cut.ranks >= 1 && (even ? cut.size % cut.ranks == 0 : fit_of(cut) != SplitFit::none);
  if (legal) return even ? cut.size / cut.ranks : part_of(cut, 0).end;
  const std::string runs = cut.unit > 1 ? fmt::format(" in runs of {}", cut.unit) : "";
  return Error{ErrorCode::invalid_argument,
               fmt::format("{} {}{} over {} ranks, expected one of {}", name, cut.size, runs,
                           cut.ranks, legal_ranks_text(cut.size, cut.unit, dealing)),
               whole.where};
}

void add_new(std::vector<Refusal>& all, const std::vector<Refusal>& more) {
  for (const Refusal& refusal : more) {
    const bool known = std::ranges::any_of(all, [&](const Refusal& other) {
      return other.reason == refusal.reason && other.needs == refusal.needs &&
             other.has == refusal.has;
    });
    if (!known) all.push_back(refusal);
  }
}

std::vector<Refusal> refusals_at(const Backend& backend, MoeProblem problem,
                                 const DeviceInfo& device, std::int64_t intermediate, int ranks) {
  problem.intermediate_size = intermediate;
  problem.parallel.tensor = ranks;
  return refusals_of(backend, problem, device);
}

std::vector<Refusal> tensor_refusals(const Backend& backend, const MoeProblem& whole,
                                     const DeviceInfo& device, int ranks) {
  const std::int64_t size = whole.intermediate_size;
  if (!backend.runs_here()) {
    if (size % ranks == 0) return refusals_at(backend, whole, device, size / ranks, ranks);
    std::vector<Refusal> refusals = refusals_of(backend, whole, device);
    refusals.push_back({Reason::shape, fmt::format("intermediate_size % {} ranks = 0", ranks),
                        std::to_string(size)});
    return refusals;
  }
  const std::int64_t unit = feature_unit(whole.gate_up, whole.down);
  const std::int64_t units = ceil_div(size, unit);
  if (units < ranks) {
    std::vector<Refusal> refusals = refusals_of(backend, whole, device);
    refusals.push_back({Reason::shape,
                        fmt::format("{} whole groups of {} in intermediate_size", ranks, unit),
                        fmt::format("{} in {}", units, size)});
    return refusals;
  }
  // The shares there are: more or fewer units, and the last one, which may be short.
  const std::int64_t fewer = units / ranks;
  std::set<std::int64_t> shares = {size - (units - fewer) * unit};
  if (ranks > 1) shares.insert({fewer * unit, ceil_div<std::int64_t>(units, ranks) * unit});
  std::vector<Refusal> all;
  for (const std::int64_t share : shares) {
    add_new(all, refusals_at(backend, whole, device, share, ranks));
  }
  return all;
}

std::vector<Refusal> expert_refusals(const Backend& backend, const MoeProblem& whole,
                                     const DeviceInfo& device, int ranks) {
  MoeProblem problem = whole;
  const std::int64_t experts = whole.num_experts;
  problem.routed_experts = whole.routed_experts > 0 ? whole.routed_experts : experts;
  problem.num_experts = std::max<std::int64_t>(experts / ranks, 1);
  problem.parallel.expert = ranks;
  std::vector<Refusal> refusals = refusals_of(backend, problem, device);
  if (backend.runs_here() ? experts < ranks : experts % ranks != 0) {
    refusals.push_back({Reason::shape,
                        backend.runs_here() ? fmt::format("at least {} experts", ranks)
                                            : fmt::format("num_experts % {} ranks = 0", ranks),
                        std::to_string(experts)});
  }
  return refusals;
}

}  // namespace

Result<MoeProblem> rank_problem(const MoeProblem& whole, const Parallel& parallel,
                                Dealing dealing) {
  MoeProblem share = whole;
  share.parallel = parallel;
  const std::int64_t unit = parallel.tensor == 1 ? 1 : feature_unit(whole.gate_up, whole.down);
  FEWBIT_TRY(share.intermediate_size,
             first_share(whole, "intermediate_size",
                         {.size = whole.intermediate_size, .unit = unit, .ranks = parallel.tensor},
                         dealing));
  FEWBIT_TRY(
      share.num_experts,
      first_share(whole, "num_experts",
                  {.size = whole.num_experts, .unit = 1, .ranks = parallel.expert}, dealing));
  if (share.routed_experts == 0) share.routed_experts = whole.num_experts;
  return share;
}

LegalSplits legal_splits(const Backend& backend, const MoeProblem& whole, const DeviceInfo& device,
                         std::span<const int> ranks) {
  LegalSplits splits;
  for (const int count : ranks) {
    splits.tensor.push_back({count, tensor_refusals(backend, whole, device, count)});
    splits.expert.push_back({count, expert_refusals(backend, whole, device, count)});
  }
  return splits;
}

}  // namespace fewbit
