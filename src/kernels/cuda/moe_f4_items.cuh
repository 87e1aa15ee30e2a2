// SPDX-License-Identifier: Apache-2.0
// An item of the streaming MoE kernel in work: its activations staged, its results stored.
#pragma once

#include "kernels/cuda/block_routing.cuh"
#include "kernels/cuda/copy_stream.cuh"
#include "kernels/cuda/f4_cell.cuh"
#include "kernels/cuda/moe_f4.hpp"

namespace fewbit::cuda {

// Of one element; not for relu2, which has no gate.
__device__ __forceinline__ float activate_f4(const MoeF4Rule& rule, float gate, float up) {
  const float g = clamp_gate(gate, rule.constants.limit);
  const float u = clamp_up(up, rule.constants.limit);
  if (rule.activation == F4Activation::gelu) return gelu(g) * u;
  if (rule.activation == F4Activation::gelu_tanh) return gelu_tanh(g) * u;
  return swigluoai(g, u, rule.constants.alpha, rule.constants.beta);
}

struct StreamBarriers {
  std::uint64_t full[stream_warps][stream_max_slots];
  std::uint64_t sums[2][stream_warps][2];  // matrix, group, buffer
};

__device__ __forceinline__ std::uint32_t scale_up(std::uint32_t pair) {
  const __nv_bfloat162 factor = __float2bfloat162_rn(0x1p64F);
  return multiply_pair(pair, factor);
}

// An item in work, in shared memory.
struct ItemOutput {
  int count;
  int unit_begin;  // the item's first unit, of all the work
  int unit_end;    // where the block's part of it ends
  int index;       // of the item
  int tokens_at;   // bytes from the beginning of the activations
  float scale[2];  // of the halves
  int route[32];
  float weight[32];  // router weight
  int expert;
};

// Activations of an item in the order in which the lanes read them: [tile][cell][lane] of 8,
// lane 4 n + r holding k 8 r … 8 r + 7 of the cell for token n.
template <class Format>
__device__ __forceinline__ void stage_tokens(const StreamMatrix& m, const ItemOutput& item,
                                             const std::uint16_t* source, int routes_a_row,
                                             uint4* to) {
  const int lane = threadIdx.x % 32;
  const int n_of_lane = lane / 4;
  for (int tile = 0; tile * 8 < item.count; ++tile) {
    const int n = tile * 8 + n_of_lane;
    const bool real = n < item.count;
    const int row = real ? static_cast<int>(static_cast<unsigned>(item.route[n]) /
                                            static_cast<unsigned>(routes_a_row))
                         : 0;
    const std::uint16_t* from = source + static_cast<long long>(row) * m.depth + lane % 4 * 8;
    uint4* tile_to = to + tile * m.cells * 32 + lane;
#pragma unroll 4
    for (int cell = threadIdx.x / 32; cell < m.cells; cell += stream_warps) {
      uint4 value = {0, 0, 0, 0};
      if (real && cell * 32 + lane % 4 * 8 < m.depth) {
        value = __ldcg(reinterpret_cast<const uint4*>(from + cell * 32));
        if (Format::scaled_activations) {
          value = {scale_up(value.x), scale_up(value.y), scale_up(value.z), scale_up(value.w)};
        }
      }
      tile_to[cell * 32] = value;
    }
  }
}

// A lane's rows of both halves by their scales, where there are any.
template <int tiles>
__device__ __forceinline__ void scale_rows(const StreamMatrix& m, const MoeF4Args& args, int matrix,
                                           int expert, CellSums<tiles>& sums, int unit, int lane) {
  const float* scales = matrix == 0 ? args.row_scale13 : args.row_scale2;
  if (scales == nullptr) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = unit * 16 + lane / 4 + i % 2 * 8;
    if (row >= m.rows_half) continue;
    const float scale = __ldg(scales + (2LL * expert + i / 2) * m.rows_half + row);
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
      sums.value[i / 2][t][i % 2 * 2] *= scale;
      sums.value[i / 2][t][i % 2 * 2 + 1] *= scale;
    }
  }
}

// silu(gate) * up of 16 rows -> activated rows.
template <class Element, int tiles>
__device__ __forceinline__ void store_silu(const StreamMatrix& m, const ItemOutput& item,
                                           const CellSums<tiles>& sums, int unit,
                                           typename Element::Value* activated, int lane) {
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int n = t * 8 + lane % 4 * 2 + column;
      if (n >= item.count) continue;
      auto* out = activated + static_cast<long long>(item.route[n]) * m.rows_half;
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const int row = unit * 16 + lane / 4 + high * 8;
        const float gate = sums.value[0][t][high * 2 + column] * item.scale[0];
        const float up = sums.value[1][t][high * 2 + column] * item.scale[1];
        if (row < m.rows_half) out[row] = Element::round(gate / (1.0F + expf(-gate)) * up);
      }
    }
  }
}

// The same of any rule, for up to 8 tokens; without a gate of rows of both halves of up.
template <class Element>
__device__ __forceinline__ void store_activated(const StreamPlan& plan, const MoeF4Args& args,
                                                const ItemOutput& item, const CellSums<1>& sums,
                                                int unit, int lane) {
  const StreamMatrix& m = plan.fc1;
  const MoeF4Rule& rule = args.rule;
#pragma unroll
  for (int column = 0; column < 2; ++column) {
    const int n = lane % 4 * 2 + column;
    if (n >= item.count) continue;
    const float weight = rule.router_weight_on_input ? item.weight[n] : 1.0F;
    auto* out = static_cast<typename Element::Value*>(args.activated) +
                static_cast<long long>(item.route[n]) * plan.fc2.depth;
#pragma unroll
    for (int high = 0; high < 2; ++high) {
      const int row = unit * 16 + lane / 4 + high * 8;
      if (row >= m.rows_half) continue;
      float gate = sums.value[0][0][high * 2 + column] * item.scale[0] * weight;
      float up = sums.value[1][0][high * 2 + column] * item.scale[1] * weight;
      if (args.bias13 != nullptr) {
        const float* bias = args.bias13 + item.expert * 2LL * m.rows_half + row;
        gate += __ldg(bias);
        up += __ldg(bias + m.rows_half);
      }
      if (f4_gated(rule.activation)) {
        out[row] = Element::round(activate_f4(rule, gate, up));
      } else {
        out[row] = Element::round(relu2(gate));
        out[m.rows_half + row] = Element::round(relu2(up));
      }
    }
  }
}

// Weighted products of 2 x 16 rows of down.
template <int tiles, bool plain>
__device__ __forceinline__ void store_products(const StreamMatrix& m, const MoeF4Args& args,
                                               const ItemOutput& item, const CellSums<tiles>& sums,
                                               int unit, int lane) {
#pragma unroll
  for (int t = 0; t < tiles; ++t) {
#pragma unroll
    for (int column = 0; column < 2; ++column) {
      const int n = t * 8 + lane % 4 * 2 + column;
      if (n >= item.count) continue;
      const float factor = !plain && args.rule.router_weight_on_input ? 1.0F : item.weight[n];
      float* out = args.products + static_cast<long long>(item.route[n]) * 2 * m.rows_half;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int high = 0; high < 2; ++high) {
          const int row = unit * 16 + lane / 4 + high * 8;
          if (plain) {
            if (row < m.rows_half) {
              out[half * m.rows_half + row] =
                  sums.value[half][t][high * 2 + column] * item.scale[0] * factor;
            }
            continue;
          }
          if (row >= m.rows_half) continue;
          const int feature = half * m.rows_half + row;
          float value = sums.value[half][t][high * 2 + column] * item.scale[0];
          if (args.bias2 != nullptr) {
            value += __ldg(args.bias2 + item.expert * 2LL * m.rows_half + feature);
          }
          out[feature] = value * factor;
        }
      }
    }
  }
}

}  // namespace fewbit::cuda
