// SPDX-License-Identifier: Apache-2.0
// The MoE layers of a checkpoint as problems that backends can be asked about.
#pragma once

#include <map>

#include "fewbit/fewbit.hpp"

namespace fewbit::cli {

struct LayerProblem {
  MoeProblem problem;
  int layer = 0;
  int moe_layers = 0;
  int similar_layers = 0;  // with the same sizes and schemes
};

// The problem of each layer with routed experts, or why it has none; draft layers too.
using MoeLayers = std::map<int, Result<MoeProblem>>;

// What is known of the layers, also of models that fewbit can't run as a whole. Errors: as
// read_layer_config.
Result<ModelConfig> layer_config(const Checkpoint& checkpoint, const Identified& identified);
// Why `prepare` writes none of the model's layers for the engine, whatever backend takes them:
// fewbit prepares for itself what it can run. Empty: nothing is in the way.
std::string why_model_unprepared(const Checkpoint& checkpoint, Engine engine);
// What stands against preparing the whole model stands against every backend's layout.
void add_unprepared(const std::string& why, Selection& selection);
// One layer, as `prepare` takes it. Errors: invalid_argument when it has no routed experts; as
// gather_moe otherwise.
Result<MoeProblem> moe_layer_problem(const Checkpoint& checkpoint, const Identified& identified,
                                     const ModelConfig& config, int layer, DType activation_dtype);
// All of them.
MoeLayers moe_layer_problems(const Checkpoint& checkpoint, const Identified& identified,
                             const ModelConfig& config, DType activation_dtype);
// The first MoE layer of the model itself and how many are like it; of a part of a model (one
// shard) the first that is whole there. Errors: unsupported when there is none; any of those
// layers' own.
Result<LayerProblem> first_moe_layer(const Checkpoint& checkpoint, const MoeLayers& layers,
                                     const ModelConfig& config);
// Whether plain weights would be run where these are not: a CPU and nothing but the scheme against
// it.
bool plain_would_run(const MoeProblem& problem, const DeviceInfo& device);

}  // namespace fewbit::cli
