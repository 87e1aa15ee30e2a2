// SPDX-License-Identifier: Apache-2.0
// The MoE layers of a checkpoint as problems that backends can be asked about.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fewbit/fewbit.hpp"
#include "select/decide_layer.hpp"

namespace fewbit {

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
// The config that `prepare` goes by: fewbit prepares for itself what it can run, for another engine
// any model whose layers are known. Errors: of reading it; unsupported: what it has that is not
// known.
Result<ModelConfig> prepare_config(const Checkpoint& checkpoint, const Identified& identified,
                                   Engine engine);
// decide_layer of a checkpoint's layer; what stands against preparing the whole model stands
// against every backend's layout.
Result<LayerDecision> decide_layer_of(const Checkpoint& checkpoint, const Identified& identified,
                                      const MoeProblem& whole, const Parallel& parallel,
                                      const DeviceInfo& device, const SelectOptions& options);
// One layer, as `prepare` takes it. Errors: invalid_argument when it has no routed experts; as
// gather_moe otherwise.
Result<MoeProblem> moe_layer_problem(const Checkpoint& checkpoint, const Identified& identified,
                                     const ModelConfig& config, int layer, DType activation_dtype);
// All of them.
MoeLayers moe_layer_problems(const Checkpoint& checkpoint, const Identified& identified,
                             const ModelConfig& config, DType activation_dtype);
// Layers of one shape and one scheme share a decision.
struct LayerGroup {
  std::vector<int> layers;
  MoeProblem problem;  // of the first of them
};
std::vector<LayerGroup> group_layers(const MoeLayers& layers);
// "0 to 22, 24"
std::string layers_text(const std::vector<int>& layers);
// The first MoE layer of the model itself and how many are like it; of a part of a model (one
// shard) the first that is whole there. Errors: unsupported when there is none; any of those
// layers' own.
Result<LayerProblem> first_moe_layer(const Checkpoint& checkpoint, const MoeLayers& layers,
                                     const ModelConfig& config);
// Whether plain weights would be run where these are not: a CPU and nothing but the scheme against
// it.
bool plain_would_run(const MoeProblem& problem, const DeviceInfo& device);

}  // namespace fewbit
