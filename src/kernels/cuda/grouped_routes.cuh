// SPDX-License-Identifier: Apache-2.0
// Dividing rows between experts for the grouped kernels. The order of the routes of an expert is
// that of the moment; no result depends on it, since every row is computed by itself.
#pragma once

#include "kernels/cuda/block_routing.cuh"
#include "kernels/cuda/grouped_plan.hpp"

namespace fewbit::cuda {

// Of the block that divides rows.
inline constexpr int sort_warps = 32;
inline constexpr int sort_threads = sort_warps * 32;

template <class T>
__device__ __forceinline__ T* at(void* scratch, long long offset) {
  return reinterpret_cast<T*>(static_cast<std::uint8_t*>(scratch) + offset);
}

// Exclusive sums of two values over the block's threads; the totals in `total`.
template <int warps>
__device__ inline int2 sums_before(int2 value, int2 (&warp_sums)[warps], int2& total) {
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
  for (int w = 0; w < warps; ++w) {
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

// Thread e: the rows and the items of expert e, behind those of `first`, and the weights of rows
// that are padding. Returns what all threads have added.
template <int warps>
__device__ inline int2 place_expert(const GroupedPlan& plan, void* scratch, int e, int routes,
                                    int2 first, int2 (&warp_sums)[warps]) {
  const int pieces = (routes + plan.item_rows - 1) / plan.item_rows;
  const int width = pieces == 0 ? 1 : ((routes + pieces - 1) / pieces + 7) / 8 * 8;
  const int rows = (routes + 7) / 8 * 8;
  int2 total;
  int2 before = sums_before({pieces, rows}, warp_sums, total);
  if (e >= plan.experts) return total;
  before = {first.x + before.x, first.y + before.y};
  at<ExpertRows>(scratch, plan.experts_at)[e] = {before.y, routes, width, before.y};
  auto* items = at<GroupedItem>(scratch, plan.items_at);
  for (int i = 0; i < pieces; ++i) {
    const int count = min(width, routes - i * width);
    items[before.x + i] = {e, before.y + i * width, count, (count + 7) / 8 * 8};
  }
  auto* row_weight = at<float>(scratch, plan.row_weight_at);
  for (int r = routes; r < rows; ++r) row_weight[before.y + r] = 0.0F;
  return total;
}

inline constexpr int sort_batch = 8;  // loads of a thread on their way at once

// Counts the routes of the experts and divides the rows between them: one block of so many warps.
// Ids that other blocks of the same launch have written are read from the second-level cache.
template <int warps, bool just_written>
__device__ inline void divide_rows(const GroupedPlan& plan, const MoeF4Args& args, void* scratch) {
  constexpr int threads = warps * 32;
  __shared__ int counts[grouped_max_experts];
  __shared__ int2 warp_sums[warps];
  const int routes = plan.tokens * plan.top_k;
  const int tid = threadIdx.x;
  for (int e = tid; e < grouped_max_experts; e += threads) counts[e] = 0;
  __syncthreads();
  for (int base = tid; base < routes; base += threads * sort_batch) {
    int expert[sort_batch];
#pragma unroll
    for (int i = 0; i < sort_batch; ++i) {
      const int route = base + i * threads;
      if constexpr (just_written) {
        expert[i] =
            route < routes ? expert_of_id(args, __ldcg(args.topk_ids + route), plan.experts) : -1;
      } else {
        expert[i] = expert_of(args, route, routes, plan.experts);
      }
    }
#pragma unroll
    for (int i = 0; i < sort_batch; ++i) {
      if (expert[i] >= 0) atomicAdd(&counts[expert[i]], 1);
    }
  }
  __syncthreads();
  int2 placed = {0, 0};
  for (int e = tid; e - tid < plan.experts; e += threads) {
    const int2 more = place_expert<warps>(plan, scratch, e, counts[e], placed, warp_sums);
    placed = {placed.x + more.x, placed.y + more.y};
    __syncthreads();
  }
  if (tid == 0) at<int>(scratch, plan.items_count_at)[0] = placed.x;
}

}  // namespace fewbit::cuda
