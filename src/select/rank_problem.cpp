// SPDX-License-Identifier: Apache-2.0
#include "select/rank_problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

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

// The smallest run of features that stays together.
std::int64_t feature_unit(const MoeProblem& whole, const Parallel& parallel) {
  return parallel.tensor == 1 ? 1 : feature_unit(whole.gate_up, whole.down);
}

MoeProblem with_share(const MoeProblem& whole, const Parallel& parallel, std::int64_t features,
                      std::int64_t experts) {
  MoeProblem share = whole;
  share.parallel = parallel;
  share.intermediate_size = features;
  share.num_experts = experts;
  share.expert_map = whole.expert_map || experts < whole.num_experts;
  if (share.routed_experts == 0) share.routed_experts = whole.num_experts;
  return share;
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

// Each size that some rank's share has.
std::set<std::int64_t> shares_of(const Cut& cut, Dealing dealing) {
  const auto more = static_cast<int>(ceil_div(cut.size, cut.unit) % cut.ranks);
  std::set<std::int64_t> shares;
  for (const int rank : {0, more, cut.ranks - 1}) shares.insert(dealt_size(cut, dealing, rank));
  return shares;
}

// Features in units, and whole experts, over the ranks of a layer.
struct Cuts {
  Cut features;
  Cut experts;
  Dealing dealing = Dealing::even;
};

// unit 0: the smallest one.
Cuts cuts_of(const MoeProblem& whole, const Parallel& parallel, Dealing dealing,
             std::int64_t unit) {
  return {.features = {.size = whole.intermediate_size,
                       .unit = unit > 0 ? unit : feature_unit(whole, parallel),
                       .ranks = parallel.tensor},
          .experts = {.size = whole.num_experts, .unit = 1, .ranks = parallel.expert},
          .dealing = dealing};
}

Result<void> check_deal(const MoeProblem& whole, const Cuts& cuts) {
  const auto check = [&](const Cut& cut, Dealing dealing, const char* parts,
                         const char* field) -> Result<void> {
    if (can_deal(cut, dealing)) return {};
    return Error{ErrorCode::invalid_argument, undealt_text(cut, dealing, parts),
                 whole.where + field};
  };
  FEWBIT_TRY(check(cuts.features, cuts.dealing, "intermediate features", " tensor_ranks"));
  return check(cuts.experts, of_experts(cuts.dealing), "experts", " expert_ranks");
}

void refuse_features(const Backend& backend, const Cut& cut, Dealing dealing,
                     std::vector<Refusal>& refusals) {
  const auto refuse = [&](std::string needs, std::string has) {
    refusals.push_back({Reason::shape, std::move(needs), std::move(has)});
  };
  const std::int64_t units = ceil_div(cut.size, cut.unit);
  if (backend.runs_here()) {
    refuse(fmt::format("{} whole groups of {} in intermediate_size", cut.ranks, cut.unit),
           fmt::format("{} in {}", units, cut.size));
  } else if (cut.size % cut.ranks != 0) {
    refuse(fmt::format("intermediate_size % {} ranks = 0", cut.ranks), std::to_string(cut.size));
  } else {
    const std::int64_t share = dealt_size(cut, dealing, 0);
    refuse(fmt::format("{} shares of {}, whole groups of {}, in intermediate_size", cut.ranks,
                       share, cut.unit),
           fmt::format("{} in {}", ceil_div(cut.size, share), cut.size));
  }
}

void refuse_experts(const Backend& backend, const Cut& cut, std::vector<Refusal>& refusals) {
  refusals.push_back({Reason::shape,
                      backend.runs_here() ? fmt::format("at least {} experts", cut.ranks)
                                          : fmt::format("num_experts % {} ranks = 0", cut.ranks),
                      std::to_string(cut.size)});
}

// Of all ranks; of the whole layer and of what can't be dealt.
std::vector<Refusal> refusals_of_ranks(const Backend& backend, const MoeProblem& whole,
                                       const DeviceInfo& device, const Parallel& parallel,
                                       const Cuts& cuts) {
  const bool features = can_deal(cuts.features, cuts.dealing);
  const bool experts = can_deal(cuts.experts, of_experts(cuts.dealing));
  const auto sizes = features ? shares_of(cuts.features, cuts.dealing)
                              : std::set<std::int64_t>{whole.intermediate_size};
  const auto counts =
      experts ? shares_of(cuts.experts, of_experts(cuts.dealing))
              : std::set{std::max<std::int64_t>(whole.num_experts / cuts.experts.ranks, 1)};
  std::vector<Refusal> all;
  for (const std::int64_t size : sizes) {
    for (const std::int64_t count : counts) {
      add_new(all, refusals_of(backend, with_share(whole, parallel, size, count), device));
    }
  }
  if (!features) refuse_features(backend, cuts.features, cuts.dealing, all);
  if (!experts) refuse_experts(backend, cuts.experts, all);
  return all;
}

}  // namespace

Dealing dealing_of(Engine engine, const MoeProblem& whole) {
  if (engine == Engine::fewbit) return Dealing::whole_units;
  const bool loads = engine == Engine::vllm || engine == Engine::sglang;
  const bool gpt_oss = whole.activation.kind == Activation::swigluoai && is_mxfp4(whole.gate_up) &&
                       is_mxfp4(whole.down);
  return loads && gpt_oss ? Dealing::padded_units : Dealing::even;
}

Result<MoeProblem> rank_problem(const MoeProblem& whole, const Parallel& parallel, Dealing dealing,
                                std::int64_t unit) {
  const Cuts cuts = cuts_of(whole, parallel, dealing, unit);
  FEWBIT_TRY(check_deal(whole, cuts));
  return with_share(whole, parallel, dealt_size(cuts.features, dealing, 0),
                    dealt_size(cuts.experts, of_experts(dealing), 0));
}

Result<RankShares> rank_shares(const MoeProblem& whole, const Parallel& parallel, Dealing dealing,
                               std::int64_t unit) {
  const Cuts cuts = cuts_of(whole, parallel, dealing, unit);
  FEWBIT_TRY(check_deal(whole, cuts));
  RankShares shares;
  for (int rank = 0; rank < parallel.tensor; ++rank) {
    const CutPart part = dealt_part(cuts.features, dealing, rank);
    shares.features.push_back(part.end - part.begin);
    shares.intermediate_size.push_back(dealt_size(cuts.features, dealing, rank));
  }
  for (int rank = 0; rank < parallel.expert; ++rank) {
    shares.num_experts.push_back(dealt_size(cuts.experts, of_experts(dealing), rank));
  }
  return shares;
}

Spread spread_of(const Backend& backend, const MoeProblem& whole, const DeviceInfo& device,
                 const Parallel& parallel) {
  std::optional<Spread> best;
  for (const std::int64_t unit : feature_units(backend, whole, parallel)) {
    Spread spread{.unit = unit, .refusals = {}};
    spread.refusals =
        refusals_of_ranks(backend, whole, device, parallel,
                          cuts_of(whole, parallel, dealing_of(backend.engine, whole), unit));
    if (!best || spread.refusals.size() < best->refusals.size()) best = std::move(spread);
  }
  return *std::move(best);
}

std::vector<std::int64_t> feature_units(const Backend& backend, const MoeProblem& whole,
                                        const Parallel& parallel) {
  constexpr std::int64_t kernel_steps[] = {16, 64};
  const std::int64_t unit = feature_unit(whole, parallel);
  std::vector<std::int64_t> units{unit};
  if (parallel.tensor == 1 || !backend.runs_here()) return units;
  for (const std::int64_t step : kernel_steps) {
    const std::int64_t wider = std::lcm(unit, step);
    if (wider > units.back()) units.push_back(wider);
  }
  return units;
}

LegalSplits legal_splits(const Backend& backend, const MoeProblem& whole, const DeviceInfo& device,
                         std::span<const int> ranks) {
  LegalSplits splits;
  for (const int count : ranks) {
    Parallel tensor = whole.parallel;
    tensor.tensor = count;
    Parallel expert = whole.parallel;
    expert.expert = count;
    splits.tensor.push_back({count, spread_of(backend, whole, device, tensor).refusals});
    splits.expert.push_back({count, spread_of(backend, whole, device, expert).refusals});
  }
  return splits;
}

}  // namespace fewbit
