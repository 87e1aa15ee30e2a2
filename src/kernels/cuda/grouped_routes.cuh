// SPDX-License-Identifier: Apache-2.0
// Sorting routes by expert for the grouped kernels: one thread block, the same order every time.
#pragma once

#include "kernels/cuda/block_routing.cuh"
#include "kernels/cuda/grouped_plan.hpp"

namespace fewbit::cuda {

inline constexpr int sort_warps = 32;
inline constexpr int sort_threads = sort_warps * 32;

template <class T>
__device__ __forceinline__ T* at(void* scratch, long long offset) {
  return reinterpret_cast<T*>(static_cast<std::uint8_t*>(scratch) + offset);
}

// Exclusive sums of two values over the block's threads; the totals in `total`.
__device__ inline int2 sums_before(int2 value, int2 (&warp_sums)[sort_warps], int2& total) {
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  int2 sum = value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int a = __shfl_up_sync(0xFFFFFFFFU, sum.x, d);
    const int b = __shfl_up_sync(0xFFFFFFFFU, sum.y, d);
    if (lane >= d) {
      sum.x += a;
      sum.y += b;
    }
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  int2 before = {sum.x - value.x, sum.y - value.y};
  total = {0, 0};
#pragma unroll
  for (int w = 0; w < sort_warps; ++w) {
    const int2 part = warp_sums[w];
    if (w < warp) {
      before.x += part.x;
      before.y += part.y;
    }
    total.x += part.x;
    total.y += part.y;
  }
  return before;
}

// Thread e: the expert's routes of each warp become where the warp's first one goes; its items.
__device__ inline void place_expert(const GroupedPlan& plan, void* scratch, int* counts,
                                    int2 (&warp_sums)[sort_warps]) {
  const int e = threadIdx.x;
  const bool real = e < plan.experts;
  int routes = 0;
  if (real) {
    for (int w = 0; w < sort_warps; ++w) routes += counts[w * plan.experts + e];
  }
  const int pieces = (routes + plan.item_rows - 1) / plan.item_rows;
  const int width = pieces == 0 ? 0 : ((routes + pieces - 1) / pieces + 7) / 8 * 8;
  int2 total;
  const int2 before = sums_before({pieces, (routes + 7) / 8 * 8}, warp_sums, total);
  if (threadIdx.x == 0) {
    int* totals = at<int>(scratch, plan.totals_at);
    totals[0] = total.x;
    totals[1] = total.y;
  }
  if (!real) return;
  auto* items = at<GroupedItem>(scratch, plan.items_at);
  int* row_item = at<int>(scratch, plan.row_item_at);
  int* row_route = at<int>(scratch, plan.row_route_at);
  for (int i = 0; i < pieces; ++i) {
    const int count = min(width, routes - i * width);
    const int rows = (count + 7) / 8 * 8;
    const int first = before.y + i * width;
    items[before.x + i] = {e, first, count, rows};
    for (int r = 0; r < rows; ++r) {
      row_item[first + r] = before.x + i;
      if (r >= count) row_route[first + r] = -1;
    }
  }
  int row = before.y;
  for (int w = 0; w < sort_warps; ++w) {
    const int here = counts[w * plan.experts + e];
    counts[w * plan.experts + e] = row;
    row += here;
  }
}

__global__ void __launch_bounds__(sort_threads)
    sort_routes(const __grid_constant__ GroupedPlan plan, const __grid_constant__ MoeF4Args args,
                void* scratch) {
  extern __shared__ int counts[];  // [sort_warps, experts]
  __shared__ int2 warp_sums[sort_warps];
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int routes = plan.tokens * plan.top_k;
  const int per_warp = (routes + sort_threads - 1) / sort_threads * 32;
  const int end = min((warp + 1) * per_warp, routes);
  int* mine = counts + warp * plan.experts;
  for (int e = lane; e < plan.experts; e += 32) mine[e] = 0;
  __syncwarp();
  for (int r = warp * per_warp; r < end; r += 32) {
    const int expert = expert_of(args, r + lane, routes, plan.experts);
    const unsigned same = same_expert(expert);
    if (expert >= 0 && (same >> lane) == 1U) mine[expert] += __popc(same);
    __syncwarp();
  }
  __syncthreads();
  place_expert(plan, scratch, counts, warp_sums);
  __syncthreads();
  int* row_route = at<int>(scratch, plan.row_route_at);
  int* route_row = at<int>(scratch, plan.route_row_at);
  auto* row_weight = at<float>(scratch, plan.row_weight_at);
  for (int r = warp * per_warp; r < end; r += 32) {
    const int expert = expert_of(args, r + lane, routes, plan.experts);
    const unsigned same = same_expert(expert);
    const int start = expert >= 0 ? mine[expert] : 0;
    __syncwarp();
    if (expert >= 0) {
      const int row = start + __popc(same & ((1U << lane) - 1U));
      row_route[row] = r + lane;
      row_weight[row] = __ldg(args.topk_weights + r + lane);
      route_row[r + lane] = row;
      if ((same >> lane) == 1U) mine[expert] = start + __popc(same);
    } else if (r + lane < routes) {
      route_row[r + lane] = -1;
    }
    __syncwarp();
  }
}

}  // namespace fewbit::cuda
