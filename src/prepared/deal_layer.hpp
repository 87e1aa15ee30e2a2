// SPDX-License-Identifier: Apache-2.0
// One layer dealt to the ranks: the backend of all of them, and the slice of one.
#pragma once

#include "prepared/expert_slice.hpp"
#include "prepared/manifest.hpp"
#include "select/backend.hpp"

namespace fewbit {

struct Deal {
  const Backend* backend = nullptr;
  ExpertSlice slice;
};

struct DealRequest {
  const ExpertWeights& any;  // expert of the layer
  const MoeProblem& whole;
  const PrepareOptions& options;
  const DeviceInfo& device;
  Engine engine = Engine::fewbit;
};
// What decide_layer says. Errors: as plan_slice and decide_layer, its refusal included.
Result<Deal> deal_layer(const DealRequest& request);
// For the backend of a prepared layer, on whatever device, in the unit that its features were dealt
// in. Errors: as plan_slice.
Result<Deal> deal_layer_again(const DealRequest& request, const PreparedLayerInfo& info);

}  // namespace fewbit
