// SPDX-License-Identifier: Apache-2.0
// MoE layer over experts of low-bit weights for many tokens an expert: the same mathematics and
// weights as moe_f4.hpp, in five launches: divide rows between the experts, gather the activations,
// fc1 with the activation, fc2, weighted sum.
//
// The products are warpgroup products (compute capability 9.0 only): weights, dequantized into
// registers, are their 64 rows and up to 128 routes of an expert their columns. One warp copies
// weights and activations into a ring in shared memory, two warpgroups use it.
#pragma once

#include "kernels/cuda/grouped_plan.hpp"
#include "kernels/cuda/moe_f4.hpp"

namespace fewbit::cuda {

// Block scales of e8m0_k32 experts must lie between these bytes or be 0: in bf16, weights and the
// constant that keeps them normal leave no more room.
inline constexpr int grouped_least_e8m0 = 64;
inline constexpr int grouped_most_e8m0 = 190;

// Of args, activated, products and counters are not used; the activation is swiglu. scratch:
// plan.scratch_bytes, 1024-byte aligned. Returns a cudaError_t.
int launch_moe_f4_grouped(const CellFormat& format, const GroupedPlan& plan, const MoeF4Args& args,
                          void* scratch, void* stream);

}  // namespace fewbit::cuda
