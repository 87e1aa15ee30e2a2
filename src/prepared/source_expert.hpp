// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "prepared/prepare_plan.hpp"

namespace fewbit {

// An expert of a planned layer as it is prepared: blocks of GGUF that have an exact form with codes
// and scales apart (canonical/gguf_exact.hpp) in that form, without biases where all of the layer's
// are zero. `where` is its name. Errors: as LayerExperts::read.
Result<ExpertWeights> read_source_expert(const PlannedLayer& layer, const Checkpoint& source,
                                         std::int64_t expert, const std::string& where);

}  // namespace fewbit
