// SPDX-License-Identifier: Apache-2.0
#include "layer_problem.hpp"

namespace fewbit::cli {
namespace {

bool similar(const MoeProblem& a, const MoeProblem& b) {
  return a.hidden_size == b.hidden_size && a.intermediate_size == b.intermediate_size &&
         a.num_experts == b.num_experts && a.gate_up == b.gate_up && a.down == b.down;
}

bool is_moe(const ModelConfig& config, std::size_t layer) {
  return layer < config.moe_layer.size() && config.moe_layer[layer];
}

}  // namespace

Result<MoeProblem> moe_layer_problem(const Checkpoint& checkpoint, const Identified& identified,
                                     const ModelConfig& config, int layer, DType activation_dtype) {
  if (layer < 0 || !is_moe(config, static_cast<std::size_t>(layer))) {
    return Error{ErrorCode::invalid_argument,
                 "layer " + std::to_string(layer) + " has no routed experts; the model has " +
                     std::to_string(config.num_layers) +
                     " layers: " + checkpoint.directory().string(),
                 "--layer"};
  }
  FEWBIT_TRY(const MoeWeights weights, gather_moe(checkpoint, identified, layer));
  FEWBIT_TRY(MoeProblem problem,
             make_problem(weights, config, activation_dtype, config.max_positions));
  problem.where = "layer " + std::to_string(layer);
  return problem;
}

Result<LayerProblem> first_moe_layer(const Checkpoint& checkpoint, const Identified& identified,
                                     const ModelConfig& config, DType activation_dtype) {
  LayerProblem out;
  for (std::size_t i = 0; i < config.moe_layer.size(); ++i) {
    if (!is_moe(config, i)) continue;
    FEWBIT_TRY(MoeProblem problem, moe_layer_problem(checkpoint, identified, config,
                                                     static_cast<int>(i), activation_dtype));
    if (out.moe_layers++ == 0) {
      out.layer = static_cast<int>(i);
      out.problem = std::move(problem);
      out.similar_layers = 1;
    } else if (similar(out.problem, problem)) {
      ++out.similar_layers;
    }
  }
  if (out.moe_layers == 0) {
    return Error{ErrorCode::unsupported,
                 config.num_experts > 1 ? "no tensor is known as an expert's, the config states " +
                                              std::to_string(config.num_experts) + " experts"
                                        : "the model has no MoE layer",
                 checkpoint.directory().string()};
  }
  return out;
}

}  // namespace fewbit::cli
