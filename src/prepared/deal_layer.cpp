// SPDX-License-Identifier: Apache-2.0
#include "prepared/deal_layer.hpp"

#include "select/decide_layer.hpp"
#include "select/rank_problem.hpp"

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

}  // namespace

Result<Deal> deal_layer(const DealRequest& request) {
  FEWBIT_TRY(slice_in(1, request));  // whether there is one for any backend
  FEWBIT_TRY(const LayerDecision decision,
             decide_layer(request.whole, parallel_of(request.options), request.device,
                          {.backend = request.options.backend, .engine = request.engine}));
  if (decision.refused) return *decision.refused;
  Deal deal{.backend = decision.backend, .slice = {}};
  FEWBIT_TRY(deal.slice, slice_in(decision.unit, request));
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
