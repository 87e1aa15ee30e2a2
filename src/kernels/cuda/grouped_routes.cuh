// SPDX-License-Identifier: Apache-2.0
// Dividing rows between experts for the grouped kernels. The order of the routes of an expert is
// that of the moment; no result depends on it, since every row is computed by itself.
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
#pragma unroll 4
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

// Where the rows of an expert lie: pieces of `width` from `first` on.
struct ExpertRows {
  int first;
  int count;
  int width;
  int next;  // the row that the next route takes
};

// Thread e: the rows and the items of expert e, and the weights of rows that are padding.
__device__ inline void place_expert(const GroupedPlan& plan, void* scratch, int routes,
                                    int2 (&warp_sums)[sort_warps]) {
  const int e = threadIdx.x;
  const int pieces = (routes + plan.item_rows - 1) / plan.item_rows;
  const int width = pieces == 0 ? 1 : ((routes + pieces - 1) / pieces + 7) / 8 * 8;
  const int rows = (routes + 7) / 8 * 8;
  int2 total;
  const int2 before = sums_before({pieces, rows}, warp_sums, total);
  if (threadIdx.x == 0) at<int>(scratch, plan.items_count_at)[0] = total.x;
  if (e >= plan.experts) return;
  at<ExpertRows>(scratch, plan.experts_at)[e] = {before.y, routes, width, before.y};
  auto* items = at<GroupedItem>(scratch, plan.items_at);
  for (int i = 0; i < pieces; ++i) {
    const int count = min(width, routes - i * width);
    items[before.x + i] = {e, before.y + i * width, count, (count + 7) / 8 * 8};
  }
  auto* row_weight = at<float>(scratch, plan.row_weight_at);
  for (int r = routes; r < rows; ++r) row_weight[before.y + r] = 0.0F;
}

inline constexpr int sort_batch = 8;  // loads of a thread on their way at once

// Counts the routes of the experts and divides the rows between them.
__global__ void __launch_bounds__(sort_threads)
    place_experts(const __grid_constant__ GroupedPlan plan, const __grid_constant__ MoeF4Args args,
                  void* scratch) {
  __shared__ int counts[grouped_max_experts];
  __shared__ int2 warp_sums[sort_warps];
  const int routes = plan.tokens * plan.top_k;
  counts[threadIdx.x] = 0;
  __syncthreads();
  for (int base = threadIdx.x; base < routes; base += sort_threads * sort_batch) {
    int expert[sort_batch];
#pragma unroll
    for (int i = 0; i < sort_batch; ++i) {
      expert[i] = expert_of(args, base + i * sort_threads, routes, plan.experts);
    }
#pragma unroll
    for (int i = 0; i < sort_batch; ++i) {
      if (expert[i] >= 0) atomicAdd(&counts[expert[i]], 1);
    }
  }
  __syncthreads();
  place_expert(plan, scratch, counts[threadIdx.x], warp_sums);
}

}  // namespace fewbit::cuda
