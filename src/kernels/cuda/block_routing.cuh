// SPDX-License-Identifier: Apache-2.0
// Sorting the routes by expert inside one thread block: every block of the streaming kernel does it
// for itself, which costs less than a launch. The order is the same in all of them: rising route
// numbers inside an expert.
#pragma once

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/moe_f4.hpp"
#include "kernels/cuda/stream_plan.hpp"

namespace fewbit::cuda {

// A piece of an expert's routes.
struct RouteItem {
  int expert;
  int first;  // in the sorted routes
  int count;
  int unused;
};

struct RoutingMemory {
  RouteItem* items;
  int* routes;
  float* weights;         // router weights of the routes, in their order
  std::uint16_t* counts;  // [warps, experts]
  int* item_count;
  int* warp_sums;  // [2 * stream_warps]
};

// The lanes of a warp that hold the same expert as this one, and this lane's rank among them.
__device__ __forceinline__ unsigned same_expert(int expert) {
  return __match_any_sync(0xFFFFFFFFU, expert);
}

// The expert that an id stands for, or -1.
__device__ __forceinline__ int expert_of_id(const MoeF4Args& args, int id, int experts) {
  if (args.expert_map != nullptr) {
    id = id >= 0 && id < args.map_size ? __ldg(args.expert_map + id) : -1;
  }
  return id >= 0 && id < experts ? id : -1;
}

// The expert of a route below `routes`, or -1.
__device__ __forceinline__ int expert_of(const MoeF4Args& args, int route, int routes,
                                         int experts) {
  if (route >= routes) return -1;
  return expert_of_id(args, __ldg(args.topk_ids + route), experts);
}

// At most 32 routes: one warp, by matching. False when an expert has too many for one item.
__device__ __forceinline__ bool sort_few_routes(const StreamPlan& plan, const MoeF4Args& args,
                                                const RoutingMemory& memory) {
  const int lane = threadIdx.x % 32;
  const int routes = plan.tokens * plan.top_k;
  const int expert = expert_of(args, lane, routes, plan.experts);
  const float weight = lane < routes ? __ldg(args.topk_weights + lane) : 0.0F;
  const unsigned same = same_expert(expert);
  const unsigned below = (1U << lane) - 1U;
  const int count = __popc(same);
  if (__any_sync(0xFFFFFFFFU, expert >= 0 && count > 8 * plan.token_tiles)) return false;
  const bool leader = expert >= 0 && (same & below) == 0;
  const unsigned leaders = __ballot_sync(0xFFFFFFFFU, leader);
  // Routes before a leader's: those of the leaders before it.
  int sum = leader ? count : 0;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFU, sum, d);
    if (lane >= d) sum += other;
  }
  const int first = __shfl_sync(0xFFFFFFFFU, sum - count, __ffs(same) - 1);
  if (leader) memory.items[__popc(leaders & below)] = {expert, first, count, 0};
  if (expert >= 0) {
    memory.routes[first + __popc(same & below)] = lane;
    memory.weights[first + __popc(same & below)] = weight;
  }
  if (lane == 0) *memory.item_count = __popc(leaders);
  return true;
}

// All threads of the block; ends with a barrier.
__device__ inline void sort_routes_in_block(const StreamPlan& plan, const MoeF4Args& args,
                                            const RoutingMemory& memory) {
  const int threads = stream_warps * 32;
  const int tid = threadIdx.x;
  const int warp = tid / 32;
  const int lane = tid % 32;
  const int routes = plan.tokens * plan.top_k;
  const int per_warp = (routes + threads - 1) / threads * 32;
  if (routes <= 32) {
    bool done = true;
    if (warp == 0) done = sort_few_routes(plan, args, memory);
    if (__syncthreads_and(done)) return;
  }
  std::uint16_t* counts = memory.counts + warp * plan.experts;
  for (int e = lane; e < plan.experts; e += 32) counts[e] = 0;
  __syncwarp();
  for (int r = warp * per_warp; r < (warp + 1) * per_warp && r < routes; r += 32) {
    const int expert = expert_of(args, r + lane, routes, plan.experts);
    const unsigned same = same_expert(expert);
    if (expert >= 0 && (same >> lane) == 1U) {
      counts[expert] = static_cast<std::uint16_t>(counts[expert] + __popc(same));
    }
    __syncwarp();
  }
  __syncthreads();

  // Experts e = tid, tid + threads …: running sums over warps, then over experts.
  const int width = 8 * plan.token_tiles;
  int routes_before = 0;
  int items_before = 0;
  for (int base = 0; base < plan.experts; base += threads) {
    const int e = base + tid;
    int before[stream_warps];  // routes of the expert in the warps before
    int total = 0;
#pragma unroll
    for (int w = 0; w < stream_warps; ++w) {
      before[w] = e < plan.experts ? memory.counts[w * plan.experts + e] : 0;
    }
#pragma unroll
    for (int w = 0; w < stream_warps; ++w) {
      const int here = before[w];
      before[w] = total;
      total += here;
    }
    const int pieces = (total + width - 1) / width;
    int route_sum = total;
    int item_sum = pieces;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int a = __shfl_up_sync(0xFFFFFFFFU, route_sum, d);
      const int b = __shfl_up_sync(0xFFFFFFFFU, item_sum, d);
      if (lane >= d) {
        route_sum += a;
        item_sum += b;
      }
    }
    if (lane == 31) {
      memory.warp_sums[warp] = route_sum;
      memory.warp_sums[stream_warps + warp] = item_sum;
    }
    __syncthreads();
    int route_start = routes_before;
    int item_start = items_before;
#pragma unroll
    for (int w = 0; w < stream_warps; ++w) {
      const int route_part = memory.warp_sums[w];
      const int item_part = memory.warp_sums[stream_warps + w];
      if (w < warp) {
        route_start += route_part;
        item_start += item_part;
      }
      routes_before += route_part;
      items_before += item_part;
    }
    route_start += route_sum - total;
    item_start += item_sum - pieces;
    if (e < plan.experts) {
      for (int i = 0; i < pieces; ++i) {
        const int left = total - i * width;
        memory.items[item_start + i] = {e, route_start + i * width, left < width ? left : width, 0};
      }
#pragma unroll
      for (int w = 0; w < stream_warps; ++w) {
        memory.counts[w * plan.experts + e] = static_cast<std::uint16_t>(before[w] + route_start);
      }
    }
    __syncthreads();
  }
  if (tid == 0) *memory.item_count = items_before;

  for (int r = warp * per_warp; r < (warp + 1) * per_warp && r < routes; r += 32) {
    const int expert = expert_of(args, r + lane, routes, plan.experts);
    const unsigned same = same_expert(expert);
    const int start = expert >= 0 ? counts[expert] : 0;
    __syncwarp();
    if (expert >= 0) {
      const int at = start + __popc(same & ((1U << lane) - 1U));
      memory.routes[at] = r + lane;
      memory.weights[at] = __ldg(args.topk_weights + r + lane);
      if ((same >> lane) == 1U) counts[expert] = static_cast<std::uint16_t>(start + __popc(same));
    }
    __syncwarp();
  }
  __syncthreads();
}

}  // namespace fewbit::cuda
