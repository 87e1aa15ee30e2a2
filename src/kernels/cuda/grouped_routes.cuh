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
                                    int2 (&warp_sums)[sort_warps], int& item_count) {
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
    item_count = total.x;
    totals[0] = total.x;
    totals[1] = total.y;
  }
  if (!real) return;
  auto* items = at<GroupedItem>(scratch, plan.items_at);
  for (int i = 0; i < pieces; ++i) {
    const int count = min(width, routes - i * width);
    items[before.x + i] = {e, before.y + i * width, count, (count + 7) / 8 * 8};
  }
  int row = before.y;
  for (int w = 0; w < sort_warps; ++w) {
    const int here = counts[w * plan.experts + e];
    counts[w * plan.experts + e] = row;
    row += here;
  }
}

// What the rows of the items are before their routes are known: padding. A warp an item.
__device__ inline void place_rows(const GroupedPlan& plan, void* scratch, int items) {
  const int lane = threadIdx.x % 32;
  int* row_item = at<int>(scratch, plan.row_item_at);
  int* row_route = at<int>(scratch, plan.row_route_at);
  auto* row_weight = at<float>(scratch, plan.row_weight_at);
  for (int i = threadIdx.x / 32; i < items; i += sort_warps) {
    const GroupedItem item = at<GroupedItem>(scratch, plan.items_at)[i];
    for (int r = lane; r < item.rows; r += 32) {
      row_item[item.first_row + r] = i;
      if (r < item.count) continue;
      row_route[item.first_row + r] = -1;
      row_weight[item.first_row + r] = 0.0F;
    }
  }
}

inline constexpr int sort_batch = 8;  // loads on their way at once

__global__ void __launch_bounds__(sort_threads)
    sort_routes(const __grid_constant__ GroupedPlan plan, const __grid_constant__ MoeF4Args args,
                void* scratch) {
  extern __shared__ int counts[];  // [sort_warps, experts]
  __shared__ int2 warp_sums[sort_warps];
  __shared__ int item_count;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int routes = plan.tokens * plan.top_k;
  const int per_warp = (routes + sort_threads - 1) / sort_threads * 32;
  const int begin = warp * per_warp;
  const int end = min(begin + per_warp, routes);
  int* mine = counts + warp * plan.experts;
  for (int e = lane; e < plan.experts; e += 32) mine[e] = 0;
  __syncwarp();
  for (int base = begin; base < end; base += 32 * sort_batch) {
    int expert[sort_batch];
#pragma unroll
    for (int i = 0; i < sort_batch; ++i) {
      expert[i] = expert_of(args, base + i * 32 + lane, end, plan.experts);
    }
#pragma unroll
    for (int i = 0; i < sort_batch; ++i) {
      const unsigned same = same_expert(expert[i]);
      if (expert[i] >= 0 && (same >> lane) == 1U) mine[expert[i]] += __popc(same);
      __syncwarp();
    }
  }
  __syncthreads();
  place_expert(plan, scratch, counts, warp_sums, item_count);
  __syncthreads();
  place_rows(plan, scratch, item_count);
  int* row_route = at<int>(scratch, plan.row_route_at);
  int* route_row = at<int>(scratch, plan.route_row_at);
  auto* row_weight = at<float>(scratch, plan.row_weight_at);
  for (int base = begin; base < end; base += 32 * sort_batch) {
    int expert[sort_batch];
    float weight[sort_batch];
#pragma unroll
    for (int i = 0; i < sort_batch; ++i) {
      const int r = base + i * 32 + lane;
      expert[i] = expert_of(args, r, end, plan.experts);
      weight[i] = r < end ? __ldg(args.topk_weights + r) : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < sort_batch; ++i) {
      const int r = base + i * 32 + lane;
      const unsigned same = same_expert(expert[i]);
      const int start = expert[i] >= 0 ? mine[expert[i]] : 0;
      __syncwarp();
      if (expert[i] >= 0) {
        const int row = start + __popc(same & ((1U << lane) - 1U));
        row_route[row] = r;
        row_weight[row] = weight[i];
        route_row[r] = row;
        if ((same >> lane) == 1U) mine[expert[i]] = start + __popc(same);
      } else if (r < end) {
        route_row[r] = -1;
      }
      __syncwarp();
    }
  }
}

}  // namespace fewbit::cuda
