// SPDX-License-Identifier: Apache-2.0
// The router on a device: from hidden states or logits to the experts of every token and their
// weights, by the rules of route() (fewbit/moe.hpp).
//
//   logits[t, e] = sum over k of  x[t, k] * w[e, k]          products and sums in f32
//   ids[t, j]    = the expert with the j-th largest choice, ties to the lower one
//   weights      = score / (sum of the chosen scores, to renormalize) * scaling, rounded once
//
// The choice is the logit itself, or with a bias score + bias in double; only experts of the best
// groups may be chosen. Scores are in double, so that without a bias the choice is exactly the
// host's, and with one it is unless two experts are within some units in the last place of a
// double.
#pragma once

#include <cstdint>

#include "kernels/cuda/grouped_plan.hpp"
#include "kernels/cuda/moe_f4.hpp"

namespace fewbit::cuda {

inline constexpr int router_max_experts = 512;
inline constexpr int router_max_top_k = 32;
inline constexpr int router_max_groups = 32;

enum class RouterScore { softmax, sigmoid, sqrt_softplus };
enum class PlainType { bf16, f16, f32 };

// Device pointers, 16-byte aligned.
struct RouterProjection {
  int tokens = 0;
  int experts = 0;
  int hidden = 0;  // a multiple of 8
  PlainType x_type = PlainType::bf16;
  PlainType w_type = PlainType::bf16;
  const void* x = nullptr;  // [tokens, hidden]
  const void* w = nullptr;  // [experts, hidden]
  float* logits = nullptr;  // [tokens, experts]
};

// What a launch begins with as zeros.
struct RouterState {
  // Of the first logit in the order of tokens that has no order: router_fault(); 0: none.
  unsigned long long fault;
  unsigned int blocks_done;
  unsigned int unused;
};
// The expert of a fault whose token has no softmax: all its logits are -infinity.
inline constexpr int router_all_masked = (1 << 12) - 1;
FEWBIT_HD constexpr unsigned long long router_fault(int token, int expert) {
  return ~(static_cast<unsigned long long>(token) << 12 | static_cast<unsigned>(expert));
}

// A logit that is NaN or +infinity has no place in the order of experts: the token then goes to
// experts 0, 1 … with weights that are NaN.
struct RouterArgs {
  int tokens = 0;
  int experts = 0;  // up to router_max_experts
  int top_k = 1;    // up to router_max_top_k and to the experts of top_groups groups
  int groups = 1;   // divides experts; up to router_max_groups
  int top_groups = 1;
  RouterScore score = RouterScore::softmax;
  bool renormalize = true;
  float scaling = 1.0F;
  const float* logits = nullptr;  // [tokens, experts]
  const float* bias = nullptr;    // [experts], finite; or none
  std::int32_t* ids = nullptr;    // [tokens, top_k]
  float* weights = nullptr;       // [tokens, top_k]
  RouterState* state = nullptr;
  // Words that launch_router makes zeros on its way, for the launch behind it; or none.
  std::uint32_t* zeros = nullptr;
  int zero_words = 0;
};

// All return a cudaError_t.
int launch_router_logits(const RouterProjection& projection, void* stream);
int launch_router(const RouterArgs& router, void* stream);
// The same launch also divides the rows between the experts for the grouped kernels, which then
// take args with rows_placed. The plan's tokens and top_k are the router's, as are ids and weights
// of args.
int launch_router_grouped(const RouterArgs& router, const GroupedPlan& plan, const MoeF4Args& args,
                          void* scratch, void* stream);

}  // namespace fewbit::cuda
