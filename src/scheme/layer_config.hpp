// SPDX-License-Identifier: Apache-2.0
// What a config says about routed experts, whatever else is unknown about the model.
#pragma once

#include "fewbit/scheme.hpp"

namespace fewbit {

// For questions about layers (which backends take them), not for running a model: sizes, router and
// activation of config.json, MoE layers as the tensors tell. What a key does not say follows from
// the tensors (a correction bias means sigmoid scores) and from the family. Errors: not_found,
// corrupt, unsupported (an activation or score without a name here).
Result<ModelConfig> read_layer_config(const Checkpoint& checkpoint, const Identified& identified);

}  // namespace fewbit
