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

bool is_mxfp4(const Scheme& scheme) {
  return scheme.weight == DType::f4_e2m1 && scheme.scale && scheme.scale->dtype == DType::f8_e8m0 &&
         !scheme.ggml_type;
}

Dealing of_experts(Dealing dealing) {
  return dealing == Dealing::whole_units ? Dealing::whole_units : Dealing::even;
}

Result<std::int64_t> first_share(const MoeProblem& whole, const char* name, const Cut& cut,
                                 Dealing dealing) {
  if (can_deal(cut, dealing)) return dealt_size(cut, dealing, 0);
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

// Every rank's matrices have the same size.
std::vector<Refusal> engine_refusals(const Backend& backend, const MoeProblem& whole,
                                     const DeviceInfo& device, const Cut& cut) {
  const Dealing dealing = dealing_of(backend.engine, whole);
  const std::int64_t share = dealt_size(cut, dealing, 0);
  if (can_deal(cut, dealing)) return refusals_at(backend, whole, device, share, cut.ranks);
  std::vector<Refusal> refusals = refusals_of(backend, whole, device);
  if (cut.size % cut.ranks != 0) {
    refusals.push_back({Reason::shape, fmt::format("intermediate_size % {} ranks = 0", cut.ranks),
                        std::to_string(cut.size)});
  } else {
    refusals.push_back({Reason::shape,
                        fmt::format("{} shares of {}, whole groups of {}, in intermediate_size",
                                    cut.ranks, share, cut.unit),
                        fmt::format("{} in {}", ceil_div(cut.size, share), cut.size)});
  }
  return refusals;
}

std::vector<Refusal> tensor_refusals(const Backend& backend, const MoeProblem& whole,
                                     const DeviceInfo& device, int ranks) {
  const std::int64_t size = whole.intermediate_size;
  const std::int64_t unit = feature_unit(whole.gate_up, whole.down);
  if (!backend.runs_here()) {
    return engine_refusals(backend, whole, device, {.size = size, .unit = unit, .ranks = ranks});
  }
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

Dealing dealing_of(Engine engine, const MoeProblem& whole) {
  if (engine == Engine::fewbit) return Dealing::whole_units;
  const bool loads = engine == Engine::vllm || engine == Engine::sglang;
  const bool gpt_oss = whole.activation.kind == Activation::swigluoai && is_mxfp4(whole.gate_up) &&
                       is_mxfp4(whole.down);
  return loads && gpt_oss ? Dealing::padded_units : Dealing::even;
}

Result<MoeProblem> rank_problem(const MoeProblem& whole, const Parallel& parallel,
                                Dealing dealing) {
  MoeProblem share = whole;
  share.parallel = parallel;
  const std::int64_t unit = parallel.tensor == 1 ? 1 : feature_unit(whole.gate_up, whole.down);
  FEWBIT_TRY(share.intermediate_size,
             first_share(whole, "intermediate_size",
                         {.size = whole.intermediate_size, .unit = unit, .ranks = parallel.tensor},
                         dealing));
  FEWBIT_TRY(share.num_experts,
             first_share(whole, "num_experts",
                         {.size = whole.num_experts, .unit = 1, .ranks = parallel.expert},
                         of_experts(dealing)));
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
