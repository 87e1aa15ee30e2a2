// SPDX-License-Identifier: Apache-2.0
// The MoE layers of a checkpoint as problems that backends can be asked about.
#pragma once

#include "fewbit/fewbit.hpp"

namespace fewbit::cli {

struct LayerProblem {
  MoeProblem problem;
  int layer = 0;
  int moe_layers = 0;
  int similar_layers = 0;  // with the same sizes and schemes
};

// One layer. Errors: invalid_argument when it has no routed experts; as gather_moe otherwise.
Result<MoeProblem> moe_layer_problem(const Checkpoint& checkpoint, const Identified& identified,
                                     const ModelConfig& config, int layer, DType activation_dtype);
// The first MoE layer and how many are like it.
Result<LayerProblem> first_moe_layer(const Checkpoint& checkpoint, const Identified& identified,
                                     const ModelConfig& config, DType activation_dtype);

}  // namespace fewbit::cli
