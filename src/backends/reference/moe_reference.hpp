// SPDX-License-Identifier: Apache-2.0
// The MoE layer as formulas: every route by itself, in double, written for reading. Tests hold the
// backends to it. Biases of gate and up are added to their products, also where the router weight
// belongs to the input; that of down before the router weight of the output.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fewbit/moe.hpp"

namespace fewbit {

enum class MoeRounding {
  none,         // nothing is rounded, the output stays double
  staged_bf16,  // as fused bf16 kernels round, formulas below
};
// staged_bf16, with R = round to bf16, acc = an f32 sum, w = router weight, g = global scale:
//   fc1        R(acc * g), or with the router weight on the input R(R(acc) * R(w * g))
//   activated  silu: R(R(silu(gate)) * R(up)); the others R(formula)
//   fc2        R(R(acc) * R(w * g)), or with the router weight on the input R(acc * g)
//   out        R(f32 sum over the routes of a token in order)

// T tokens, K top_k, H hidden_size, I intermediate_size.
struct MoeReferenceInput {
  std::int64_t tokens = 0;
  std::span<const float> hidden;             // [T, H]
  std::span<const std::int32_t> topk_ids;    // [T, K]
  std::span<const float> topk_weights;       // [T, K]
  std::span<const std::int32_t> expert_map;  // empty: ids are local
};

struct MoeReferenceOptions {
  ActivationParams activation;
  RouterWeightSide router_weight_side = RouterWeightSide::output;
  MoeRounding rounding = MoeRounding::none;
};

// One row a route; rows of dropped routes are zero.
struct MoeReferenceTrace {
  std::vector<double> fc1;        // [T K, 2I] gate then up, or [T K, I] without a gate
  std::vector<double> activated;  // [T K, I]
  std::vector<double> fc2;        // [T K, H] with the router weight
};

struct MoeReferenceResult {
  std::vector<double> out;  // [T, H]
  MoeReferenceTrace trace;
  std::vector<float> amax;  // [experts, 2] as AmaxTable, from zero
};

// Errors: invalid_argument (spans of other sizes, gate missing or not wanted,
// biases with rounding), unsupported
// (scheme).
Result<MoeReferenceResult> moe_reference(const MoeWeights& weights, const MoeReferenceInput& input,
                                         const MoeReferenceOptions& options);

}  // namespace fewbit
