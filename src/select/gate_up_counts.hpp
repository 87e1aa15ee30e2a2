// SPDX-License-Identifier: Apache-2.0
// What only the weights of a layer tell of gate and up: layouts with one place for both may lose
// something of such experts.
#pragma once

#include <cstdint>
#include <vector>

#include "canonical/layer_experts.hpp"

namespace fewbit {

// Experts whose gate and up are in act-orders of their own; most are in one, and then only these
// are read. Errors: as LayerExperts::read.
Result<std::vector<std::int64_t>> two_order_experts(const Checkpoint& source,
                                                    const LayerExperts& layer);
// Experts whose gate and up have global scales that no exact step makes one.
Result<std::vector<std::int64_t>> two_scale_experts(const Checkpoint& source,
                                                    const LayerExperts& layer);

}  // namespace fewbit
