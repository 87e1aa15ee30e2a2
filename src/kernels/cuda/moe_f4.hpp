// SPDX-License-Identifier: Apache-2.0
// Fused MoE layer over f4_e2m1 experts, for few tokens an expert: one launch.
//
//   out[t] = sum over slots j of  weight[t,j] * (W2[e] act(W1[e] x[t]))      e = expert of (t, j)
//   act = silu(gate) * up;  products accumulated in f32, act rounded to bf16, out rounded once
//
// Every thread block streams its share of the weights through a ring in shared memory, from the
// first microsecond to the last: the rows of fc1, then those of fc2. A share of fc2 waits only for
// the fc1 rows of its expert. Blocks wait for each other, so the launch is cooperative.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream_plan.hpp"

namespace fewbit::cuda {

enum class F4Format { e4m3_k16, e8m0_k32 };

// Device pointers, 16-byte aligned.
struct MoeF4Args {
  const std::uint8_t* w13 = nullptr;       // [experts] matrices of layout cuda_f4_cells: [gate; up]
  const std::uint8_t* w2 = nullptr;        // [experts], down
  const float* global13 = nullptr;         // [experts, 2] gate, up; with f4_global_factor
  const float* global2 = nullptr;          // [experts]; likewise
  const void* x = nullptr;                 // bf16 [tokens, hidden]; |x| < 2^63 for e8m0_k32
  const std::int32_t* topk_ids = nullptr;  // [tokens, top_k]; others than [0, experts) add nothing
  const float* topk_weights = nullptr;     // [tokens, top_k]
  void* out = nullptr;                     // bf16 [tokens, hidden]
  void* activated = nullptr;               // scratch, bf16 [tokens * top_k, intermediate]
  float* products = nullptr;               // scratch, f32 [tokens * top_k, hidden]
  std::uint32_t* counters = nullptr;       // plan.counters zeros; every run leaves them zero
};

// What a global scale is multiplied by before it is passed: the kernels keep weights times 2^-7, or
// sums times 2^-62.
constexpr float f4_global_factor(F4Format format) {
  return format == F4Format::e4m3_k16 ? 0x1p7F : 0x1p62F;
}

// Returns a cudaError_t; nothing is launched when it isn't 0. stream: a cudaStream_t.
int launch_moe_f4(F4Format format, const StreamPlan& plan, const MoeF4Args& args, void* stream);

}  // namespace fewbit::cuda
