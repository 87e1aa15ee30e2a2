// SPDX-License-Identifier: Apache-2.0
#include "select/rank_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/checked.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

constexpr int most_shown = 64;

std::string divisors_text(std::int64_t size) {
  std::string text;
  for (int ranks = 1; ranks <= most_shown; ++ranks) {
    if (size % ranks == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks);
  }
  return text;
}

Result<std::int64_t> even_share(const MoeProblem& whole, const char* name, std::int64_t size,
                                int ranks) {
  if (ranks >= 1 && size % ranks == 0) return size / ranks;
  return Error{ErrorCode::invalid_argument,
               fmt::format("{} {} over {} ranks, expected one of {}", name, size, ranks,
                           divisors_text(size)),
               whole.where};
}

// Columns of down, which are rows of gate and up, that must stay together.
std::int64_t unit_of(const MoeProblem& whole) {
  std::int64_t unit = 1;
  const Scheme& down = whole.down;
  if (down.scale && down.act_order != ActOrder::group) {
    unit = std::max<std::int64_t>(down.scale->granularity.cols, 1);
  }
  if (whole.gate_up.scale) {
    unit = std::lcm(unit, std::max<std::int64_t>(whole.gate_up.scale->granularity.rows, 1));
  }
  return unit;
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
  const std::int64_t unit = unit_of(whole);
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

Result<MoeProblem> rank_problem(const MoeProblem& whole, const Parallel& parallel) {
  MoeProblem share = whole;
  share.parallel = parallel;
  FEWBIT_TRY(share.intermediate_size,
             even_share(whole, "intermediate_size", whole.intermediate_size, parallel.tensor));
  FEWBIT_TRY(share.num_experts,
             even_share(whole, "num_experts", whole.num_experts, parallel.expert));
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
