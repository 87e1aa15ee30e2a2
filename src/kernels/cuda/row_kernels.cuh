// SPDX-License-Identifier: Apache-2.0
// What the grouped kernels launch around their products: rows divided, gathered and added up.
#pragma once

#include "kernels/cuda/grouped_routes.cuh"
#include "kernels/cuda/grouped_rows.cuh"
#include "kernels/cuda/store_result.cuh"

namespace fewbit::cuda {

__global__ void __launch_bounds__(sort_threads)
    place_experts(const __grid_constant__ GroupedPlan plan, const __grid_constant__ MoeF4Args args,
                  void* scratch) {
  divide_rows<sort_warps, false>(plan, args, scratch);
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

inline constexpr int gather_batch = 4;  // loads of a lane on their way at once

// A row for every route, with the activations of its token: a warp a route.
__global__ void __launch_bounds__(256)
    gather_rows(const __grid_constant__ GroupedPlan plan, const __grid_constant__ MoeF4Args args,
                void* scratch) {
  const int routes = plan.tokens * plan.top_k;
  const int lane = threadIdx.x % 32;
  const int chunks = plan.gathered / 8;
  auto* experts = at<ExpertRows>(scratch, plan.experts_at);
  for (int route = blockIdx.x * 8 + threadIdx.x / 32; route < routes; route += gridDim.x * 8) {
    const int expert = expert_of(args, route, routes, plan.experts);
    if (expert < 0) {
      if (lane == 0) at<int>(scratch, plan.route_row_at)[route] = -1;
      continue;
    }
    int row = 0;
    if (lane == 0) {
      row = atomicAdd(&experts[expert].next, 1);
      at<int>(scratch, plan.route_row_at)[route] = row;
      at<float>(scratch, plan.row_weight_at)[row] = __ldg(args.topk_weights + route);
    }
    row = __shfl_sync(0xFFFFFFFFU, row, 0);
    const ExpertRows rows = experts[expert];
    const int piece = (row - rows.first) / rows.width;
    const int first = rows.first + piece * rows.width;
    const int item_rows = (min(rows.width, rows.count - piece * rows.width) + 7) / 8 * 8;
    std::uint8_t* image = at<std::uint8_t>(scratch, plan.x_at) + 2LL * first * plan.gathered;
    const auto* from = reinterpret_cast<const uint4*>(
        static_cast<const std::uint16_t*>(args.x) +
        static_cast<long long>(route / plan.x_routes) * plan.gathered);
    // Four lanes a cell: each reads a run of 8 k and writes a chunk.
    for (int base = 0; base < chunks; base += 32 * gather_batch) {
      uint4 v[gather_batch];
#pragma unroll
      for (int j = 0; j < gather_batch; ++j) {
        const int i = base + j * 32 + lane;
        v[j] = i < chunks ? __ldg(from + i) : uint4{};
      }
#pragma unroll
      for (int j = 0; j < gather_batch; ++j) {
        const int i = base + j * 32 + lane;
        const uint4 chunk = transpose_of_four(v[j]);
        if (i >= chunks) continue;
        *reinterpret_cast<uint4*>(image + chunk_place(item_rows, row - first, i / 8, i % 8)) =
            chunk;
      }
    }
  }
}

// Products of a row lie as the lanes have them: for unit u and lane g four features, 16 u + g and
// the one 8 rows on, of the upper and of the lower half of down.
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
    const long long at = static_cast<long long>(token) * plan.hidden + quad / 8 * 16 + quad % 8;
    const int half = plan.hidden / 2;
    store_result(args.out, args.out_type, at, sum.x);
    store_result(args.out, args.out_type, at + 8, sum.y);
    store_result(args.out, args.out_type, at + half, sum.z);
    store_result(args.out, args.out_type, at + half + 8, sum.w);
  }
}

}  // namespace fewbit::cuda
