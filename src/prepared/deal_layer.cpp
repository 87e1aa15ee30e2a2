// SPDX-License-Identifier: Apache-2.0
#include "prepared/deal_layer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "select/rank_problem.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

Parallel parallel_of(const PrepareOptions& options) {
  return {.tensor = options.split.tensor_ranks,
          .expert = options.split.expert_ranks,
          .exchange = options.exchange};
}

Result<ExpertSlice> slice_in(std::int64_t unit, const DealRequest& request) {
  const MoeProblem& whole = request.whole;
  return plan_slice(
      request.any, whole.num_experts,
      {.split = request.options.split, .dealing = dealing_of(request.engine, whole), .unit = unit},
      whole.where);
}

// "; marlin takes 1, 2, 4 tensor ranks" of a forced backend that refuses a rank's share.
std::string legal_text(const DealRequest& request) {
  const Backend* forced = find_backend(request.options.backend);
  if (forced == nullptr) return "";
  const std::vector<Refusal> always = refusals_of(*forced, request.whole, request.device);
  if (!std::ranges::all_of(
          always, [](const Refusal& refusal) { return refusal.reason == Reason::shape; })) {
    return "";  // which no number of ranks changes
  }
  std::vector<int> legal;
  for (const RankVerdict& verdict :
       legal_splits(*forced, request.whole, request.device, examined_ranks()).tensor) {
    if (verdict.refusals.empty()) legal.push_back(verdict.ranks);
  }
  if (legal.empty()) {
    return fmt::format("; {} takes no number of tensor ranks, 1 to {}", forced->name, most_ranks);
  }
  return fmt::format("; {} takes {} tensor ranks", forced->name, ranks_text(legal));
}

}  // namespace

Result<Deal> deal_layer(const DealRequest& request) {
  Deal deal;
  FEWBIT_TRY(deal.slice, slice_in(1, request));  // whether there is one for any backend
  const Parallel parallel = parallel_of(request.options);
  const auto selection =
      select_spread(request.whole, parallel, request.device,
                    {.backend = request.options.backend, .engine = request.engine});
  if (!selection) {
    return Error{selection.error().code, selection.error().what + legal_text(request),
                 selection.error().where};
  }
  deal.backend = find_backend(selection->chosen);
  const Spread spread = spread_of(*deal.backend, request.whole, request.device, parallel);
  FEWBIT_TRY(deal.slice, slice_in(spread.unit, request));
  return deal;
}

Result<Deal> deal_layer_again(const DealRequest& request, const PreparedLayerInfo& info) {
  Deal deal{.backend = find_backend(info.backend), .slice = {}};
  FEWBIT_TRY(deal.slice, slice_in(1, request));
  for (const std::int64_t unit :
       feature_units(*deal.backend, request.whole, parallel_of(request.options))) {
    const auto slice = slice_in(unit, request);
    if (slice && slice->first_feature == info.first_feature &&
        slice->padded_features == info.problem.intermediate_size) {
      deal.slice = *slice;
      return deal;
    }
  }
  return deal;
}

}  // namespace fewbit
