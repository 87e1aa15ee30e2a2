// SPDX-License-Identifier: Apache-2.0
// Activations as the grouped products read them. An item's rows are an image of shared memory, so
// that one bulk copy brings a stage: for every 64 k all rows of 128 bytes, their 16-byte chunks
// swizzled. Inside 32 k the order is that of the weights' registers (layout/cuda_f4_cells.hpp):
// chunk 2 s + h holds k 4 s + 2 h and the next of each run of 8.
#pragma once

#include "kernels/cuda/grouped_routes.cuh"

namespace fewbit::cuda {

// Where a chunk of a row of an item lies, from the beginning of the item's image.
__device__ __forceinline__ std::uint32_t chunk_place(int rows, int row, int step, int chunk) {
  return static_cast<std::uint32_t>((step * rows + row) * 128 + ((chunk ^ (row & 7)) * 16));
}

// Of four neighbouring lanes with four words each: lane q gets word q of each.
__device__ __forceinline__ uint4 transpose_of_four(const uint4& v) {
  const int q = threadIdx.x % 4;
  std::uint32_t out[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const int other = q ^ r;
    const std::uint32_t low = other & 1 ? v.y : v.x;
    const std::uint32_t high = other & 1 ? v.w : v.z;
    const std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFU, other & 2 ? high : low, r);
#pragma unroll
    for (int j = 0; j < 4; ++j) out[j] = j == other ? got : r == 0 ? 0 : out[j];
  }
  return {out[0], out[1], out[2], out[3]};
}

// Rows of x in the order of the sorted routes, a warp a row; padding is zero.
__global__ void __launch_bounds__(256)
    gather_rows(const __grid_constant__ GroupedPlan plan, const __grid_constant__ MoeF4Args args,
                void* scratch) {
  const int rows = __ldg(at<int>(scratch, plan.totals_at) + 1);
  const int lane = threadIdx.x % 32;
  const auto* items = at<GroupedItem>(scratch, plan.items_at);
  for (int row = blockIdx.x * 8 + threadIdx.x / 32; row < rows; row += gridDim.x * 8) {
    const GroupedItem item = items[at<int>(scratch, plan.row_item_at)[row]];
    const int route = at<int>(scratch, plan.row_route_at)[row];
    std::uint8_t* image = at<std::uint8_t>(scratch, plan.x_at) + 2LL * item.first_row * plan.hidden;
    const auto* from = reinterpret_cast<const uint4*>(
        static_cast<const std::uint16_t*>(args.x) +
        static_cast<long long>(route < 0 ? 0 : route / plan.top_k) * plan.hidden);
    // Four lanes a cell: each reads a run of 8 k and writes a chunk.
    for (int i = lane; i < plan.hidden / 8; i += 32) {
      uint4 v = {};
      if (route >= 0) v = __ldg(from + i);
      const uint4 chunk = transpose_of_four(v);
      const std::uint32_t place = chunk_place(item.rows, row - item.first_row, i / 8, i % 8);
      *reinterpret_cast<uint4*>(image + place) = chunk;
    }
  }
}

// out[t] = sum of the token's products in the order of its slots.
__global__ void __launch_bounds__(256)
    sum_rows(const __grid_constant__ GroupedPlan plan, const __grid_constant__ MoeF4Args args,
             void* scratch) {
  const int quads = plan.hidden / 4;
  const int* route_row = at<int>(scratch, plan.route_row_at);
  const auto* products = at<float4>(scratch, plan.products_at);
  const long long total = static_cast<long long>(plan.tokens) * quads;
  for (long long i = blockIdx.x * 256LL + threadIdx.x; i < total; i += gridDim.x * 256LL) {
    const int token = static_cast<int>(i / quads);
    const int quad = static_cast<int>(i - static_cast<long long>(token) * quads);
    float4 sum = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll 8
    for (int j = 0; j < plan.top_k; ++j) {
      const int row = __ldg(route_row + static_cast<long long>(token) * plan.top_k + j);
      if (row < 0) continue;
      const float4 v = __ldcs(products + static_cast<long long>(row) * quads + quad);
      sum.x += v.x;
      sum.y += v.y;
      sum.z += v.z;
      sum.w += v.w;
    }
    const __nv_bfloat162 low = __floats2bfloat162_rn(sum.x, sum.y);
    const __nv_bfloat162 high = __floats2bfloat162_rn(sum.z, sum.w);
    reinterpret_cast<uint2*>(args.out)[i] = {*reinterpret_cast<const std::uint32_t*>(&low),
                                             *reinterpret_cast<const std::uint32_t*>(&high)};
  }
}

}  // namespace fewbit::cuda
