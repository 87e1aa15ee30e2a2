// SPDX-License-Identifier: Apache-2.0
// The streaming MoE kernel of moe_f4.hpp.
//
// The work of a matrix is items (an expert and up to 8 * token_tiles of its routes) times units (32
// weight rows); each block takes a contiguous run of it. Groups of `split` warps take its units in
// turn; the warps of a group share a unit's k, and one of them, in turn, adds up their sums. Each
// warp streams its own weights: it owns a ring in shared memory and refills a slot as soon as it
// has used it, so that copies run far ahead of the arithmetic, over the end of fc1 as well.
#pragma once

#include "kernels/cuda/block_routing.cuh"
#include "kernels/cuda/copy_stream.cuh"
#include "kernels/cuda/f4_cell.cuh"
#include "kernels/cuda/f8_cell.cuh"
#include "kernels/cuda/int_cell.cuh"
#include "kernels/cuda/moe_f4.hpp"
#include "kernels/cuda/moe_f4_items.cuh"
#include "kernels/cuda/store_result.cuh"

namespace fewbit::cuda {

// What a warp keeps over the units of one matrix.
struct WarpState {
  int matrix;
  int group;
  int groups;
  int member;      // of the group
  int next;        // this group's next unit, of the block's run
  int units_done;  // by this group
};

inline constexpr int stream_items = 4;  // in work at once, as far as their activations fit

// Where a warp is in its ring.
struct RingPlace {
  int slot;
  int parity;
};

// `cells` neighbouring cells.
template <class Format, int tiles, int cells>
__device__ __forceinline__ void run_cells(CellSums<tiles>& sums, const std::uint8_t* codes,
                                          const std::uint8_t* tokens, int token_stride, int lane) {
  CellOperands<tiles> operands[2];
  load_cell<Format, tiles>(operands[0], codes, tokens, token_stride, lane);
#pragma unroll
  for (int cell = 0; cell < cells; ++cell) {
    if (cell + 1 < cells) {
      load_cell<Format, tiles>(operands[(cell + 1) % 2], codes + (cell + 1) * Format::cell_bytes,
                               tokens + (cell + 1) * 512, token_stride, lane);
    }
    Format::template step<tiles>(sums, operands[cell % 2]);
  }
}

// Adds up what the warps of a group hold. True for the one warp that then has the sums.
template <int tiles>
__device__ __forceinline__ bool add_up(const StreamPlan& plan, const StreamMatrix& m,
                                       StreamBarriers& barriers, WarpState& state,
                                       CellSums<tiles>& sums, float4* partials, int lane) {
  const int done = state.units_done++;
  if (m.split == 1) return true;
  auto& full = barriers.sums[state.matrix][state.group];
  // The reader of the buffer that comes next has finished once it has arrived for the one after.
  if (done >= 2) barrier_wait(shared_address(&full[(done - 1) & 1]), (done - 1) >> 1 & 1);
  const int stride = 2 * plan.token_tiles * 32;
  float4* buffer = partials + (state.group * 2 + (done & 1)) * m.split * stride + lane;
#pragma unroll
  for (int i = 0; i < 2 * tiles; ++i) {
    const float(&v)[4] = sums.value[i / tiles][i % tiles];
    buffer[state.member * stride + i * 32] = {v[0], v[1], v[2], v[3]};
  }
  barrier_arrive(shared_address(&full[done & 1]), stream_warps / m.split);
  if (state.member != (done & (m.split - 1))) return false;
  barrier_wait(shared_address(&full[done & 1]), done >> 1 & 1);
  sums = {};
#pragma unroll 2
  for (int p = 0; p < m.split; ++p) {
#pragma unroll
    for (int i = 0; i < 2 * tiles; ++i) {
      const float4 part = buffer[p * stride + i * 32];
      float(&v)[4] = sums.value[i / tiles][i % tiles];
      v[0] += part.x;
      v[1] += part.y;
      v[2] += part.z;
      v[3] += part.w;
    }
  }
  return true;
}

// This group's units of one item.
template <class Format, int tiles, bool plain>
__device__ __forceinline__ void run_units(const StreamPlan& plan, const MoeF4Args& args,
                                          StreamBarriers& barriers, CopyStream<Format>& copies,
                                          RingPlace& place, WarpState& state,
                                          const ItemOutput& item, std::uint8_t* shared) {
  using Element = typename Format::Element;
  const StreamMatrix& m = state.matrix == 0 ? plan.fc1 : plan.fc2;
  const int lane = threadIdx.x % 32;
  const int begin = state.member * m.warp_cells;
  const int end = min(begin + m.warp_cells, m.cells);
  const std::uint8_t* tokens = shared + plan.tokens_at + item.tokens_at;
  const int to = item.unit_end;
#pragma unroll 1
  for (; state.next < to; state.next += state.groups) {
    CellSums<tiles> sums = {};
#pragma unroll 1
    for (int cell = begin; cell < end; cell += m.piece_cells) {
      barrier_wait(shared_address(copies.full + place.slot), place.parity);
      const std::uint8_t* codes = copies.ring + place.slot * plan.slot_bytes;
      const std::uint8_t* rows = tokens + cell * 512;
      const int cells = min(m.piece_cells, end - cell);
      if constexpr (Format::own_pieces) {
        Format::template run_piece<tiles>(sums, codes, cells, rows, m.cells * 512, lane,
                                          args.format);
      } else if (cells == stream_piece_cells) {
        run_cells<Format, tiles, stream_piece_cells>(sums, codes, rows, m.cells * 512, lane);
      } else {
#pragma unroll 1
        for (int i = 0; i < cells; ++i) {
          run_cells<Format, tiles, 1>(sums, codes + i * Format::cell_bytes, rows + i * 512,
                                      m.cells * 512, lane);
        }
      }
      __syncwarp();
      if (lane == 0) copies.issue();
      if (++place.slot == plan.slots) {
        place.slot = 0;
        place.parity ^= 1;
      }
    }
    __syncwarp();
    if (!add_up<tiles>(plan, m, barriers, state, sums,
                       reinterpret_cast<float4*>(shared + plan.partials_at), lane)) {
      continue;
    }
    const int unit = state.next - item.unit_begin;
    if constexpr (Format::row_scales) {
      scale_rows<tiles>(m, args, state.matrix, item.expert, sums, unit, lane);
    }
    if (state.matrix == 0) {
      if constexpr (plain) {
        store_silu<Element, tiles>(m, item, sums, unit,
                                   static_cast<typename Element::Value*>(args.activated), lane);
      } else {
        store_activated<Element>(plan, args, item, sums, unit, lane);
      }
      __syncwarp();
      if (lane == 0) add_release(args.counters + item.index, 1);
    } else {
      store_products<tiles, plain>(m, args, item, sums, unit, lane);
    }
  }
}

// out[t] = sum of the token's weighted products, in slot order.
__device__ inline void sum_products(const StreamPlan& plan, const MoeF4Args& args) {
  const int hidden = plan.hidden;
  const int quads = hidden / 4;
  const long long total = static_cast<long long>(plan.tokens) * quads;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32 * gridDim.x + blockIdx.x;
  for (long long i = static_cast<long long>(warp) * 32 + lane; i < total;
       i += static_cast<long long>(gridDim.x) * stream_warps * 32) {
    const int token = static_cast<int>(i / quads);
    const int quad = static_cast<int>(i - static_cast<long long>(token) * quads);
    float4 sum = {0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll 8
    for (int j = 0; j < plan.top_k; ++j) {
      const long long route = static_cast<long long>(token) * plan.top_k + j;
      if (expert_of(args, static_cast<int>(route), plan.tokens * plan.top_k, plan.experts) < 0) {
        continue;
      }
      const float4 v =
          __ldcg(reinterpret_cast<const float4*>(args.products + route * hidden) + quad);
      sum.x += v.x;
      sum.y += v.y;
      sum.z += v.z;
      sum.w += v.w;
    }
    store_results(args.out, args.out_type, i, sum);
  }
}

// Tiles that an item of so many tokens is worked on with; what lies in one without tokens is never
// stored.
__device__ __forceinline__ int tiles_of(int count) { return count <= 8 ? 1 : count <= 16 ? 2 : 4; }

// Takes the next items of the block's run whose activations fit, from unit `from` on; returns where
// they end.
template <class Format>
__device__ int stage_items(const StreamPlan& plan, const MoeF4Args& args, const RouteItem* items,
                           int matrix, int from, int run_end, ItemOutput* outputs, int* count,
                           std::uint8_t* shared) {
  const StreamMatrix& m = matrix == 0 ? plan.fc1 : plan.fc2;
  const auto* routes = reinterpret_cast<const int*>(shared + plan.routes_at);
  const auto* weights = reinterpret_cast<const float*>(routes + plan.tokens * plan.top_k);
  const auto* scales = reinterpret_cast<const float*>(shared + plan.scales_at);
  const int tid = threadIdx.x;
  int used = 0;
  int staged = 0;
  int index = static_cast<int>(static_cast<unsigned>(from) / static_cast<unsigned>(m.units));
  for (; staged < stream_items && from < run_end; ++staged, ++index) {
    const RouteItem item = items[index];
    const int bytes = tiles_of(item.count) * m.cells * 512;
    if (used + bytes > plan.tokens_bytes) break;
    const int end = min(run_end, (index + 1) * m.units);
    ItemOutput& output = outputs[staged];
    if (tid < item.count) {
      output.route[tid] = routes[item.first + tid];
      output.weight[tid] = weights[item.first + tid];
    }
    if (tid < 2) output.scale[tid] = scales[3 * item.expert + (matrix == 0 ? tid : 2)];
    if (tid == 0) {
      output.count = item.count;
      output.expert = item.expert;
      output.unit_begin = index * m.units;
      output.unit_end = end;
      output.index = index;
      output.tokens_at = used;
      if (matrix == 1) wait_for_count(args.counters + index, plan.fc1.units);
    }
    used += bytes;
    from = end;
  }
  *count = staged;
  __syncthreads();
#pragma unroll 1
  for (int i = 0; i < staged; ++i) {
    stage_tokens<Format>(m, outputs[i],
                         static_cast<const std::uint16_t*>(matrix == 0 ? args.x : args.activated),
                         matrix == 0 ? plan.x_routes : 1,
                         reinterpret_cast<uint4*>(shared + plan.tokens_at + outputs[i].tokens_at));
  }
  return from;
}

// The block's share of both matrices.
template <class Format, int max_tiles, bool plain>
__device__ __forceinline__ void run_matrices(const StreamPlan& plan, const MoeF4Args& args,
                                             StreamBarriers& barriers, CopyStream<Format>& copies,
                                             ItemOutput* outputs, std::uint8_t* shared) {
  const int warp = threadIdx.x / 32;
  RingPlace place = {};
  bool primed = false;
#pragma unroll 1
  for (int matrix = 0; matrix < 2; ++matrix) {
    const StreamMatrix& m = matrix == 0 ? plan.fc1 : plan.fc2;
    const StreamRun run = run_of_block(copies.item_count, m.units);
    WarpState state = {};
    state.matrix = matrix;
    state.group = warp / m.split;
    state.groups = stream_warps / m.split;
    state.member = warp & (m.split - 1);
    state.next = run.begin + state.group;
#pragma unroll 1
    for (int from = run.begin; from < run.end;) {
      int count = 0;
      from = stage_items<Format>(plan, args, copies.items, matrix, from, run.end, outputs, &count,
                                 shared);
      __syncthreads();
      if (!primed && threadIdx.x % 32 == 0) {
        for (int i = 1; i < plan.slots; ++i) copies.issue();
      }
      primed = true;
#pragma unroll 1
      for (int i = 0; i < count; ++i) {
        const ItemOutput& item = outputs[i];
        if (max_tiles == 1 || item.count <= 8) {
          run_units<Format, 1, plain>(plan, args, barriers, copies, place, state, item, shared);
        } else if (max_tiles == 2 || item.count <= 16) {
          run_units<Format, max_tiles == 1 ? 1 : 2, plain>(plan, args, barriers, copies, place,
                                                           state, item, shared);
        } else {
          run_units<Format, max_tiles, plain>(plan, args, barriers, copies, place, state, item,
                                              shared);
        }
      }
      __syncthreads();
    }
  }
}

// Gate, up and down of every expert, in turn.
__device__ __forceinline__ float load_scale(const MoeF4Args& args, int i) {
  const int expert = i / 3;
  const int matrix = i - 3 * expert;
  return matrix < 2 ? __ldg(args.global13 + 2 * expert + matrix) : __ldg(args.global2 + expert);
}

// What every block reads before it can begin, on its way as early as can be.
__device__ __forceinline__ void prefetch_inputs(const StreamPlan& plan, const MoeF4Args& args) {
  const int routes = plan.tokens * plan.top_k;
  const int line = threadIdx.x * 128;
  if (line < routes * 4) {
    prefetch_line(reinterpret_cast<const char*>(args.topk_ids) + line);
    prefetch_line(reinterpret_cast<const char*>(args.topk_weights) + line);
  }
  if (line < plan.tokens * plan.fc1.depth * 2) {
    prefetch_line(static_cast<const char*>(args.x) + line);
  }
}

// plain: silu(gate) * up without biases, router weight on the output.
template <class Format, int max_tiles, bool plain>
__global__ void __launch_bounds__(stream_warps * 32, 1)
    moe_f4_stream(const __grid_constant__ StreamPlan plan, const __grid_constant__ MoeF4Args args) {
  extern __shared__ __align__(128) std::uint8_t shared[];
  __shared__ StreamBarriers barriers;
  __shared__ ItemOutput outputs[stream_items];
  __shared__ int warp_sums[2 * stream_warps];
  __shared__ int item_count;
  const int tid = threadIdx.x;
  const int warp = tid / 32;
  auto* items = reinterpret_cast<RouteItem*>(shared + plan.items_at);
  auto* routes = reinterpret_cast<int*>(shared + plan.routes_at);
  if (tid < stream_warps * stream_max_slots) {
    barrier_init(shared_address(&barriers.full[0][0] + tid), 1);
  } else if (tid < stream_warps * (stream_max_slots + 4)) {
    barrier_init(shared_address(&barriers.sums[0][0][0] + tid - stream_warps * stream_max_slots),
                 stream_warps * 32);
  }
  prefetch_inputs(plan, args);
  auto* scales = reinterpret_cast<float*>(shared + plan.scales_at);
  // On its way while the routes are sorted.
  const float scale = tid < 3 * plan.experts ? load_scale(args, tid) : 0.0F;
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  sort_routes_in_block(
      plan, args,
      {items, routes, reinterpret_cast<float*>(routes + plan.tokens * plan.top_k),
       reinterpret_cast<std::uint16_t*>(shared + plan.counts_at), &item_count, warp_sums});
  if (tid < 3 * plan.experts) scales[tid] = scale;
  for (int i = tid + stream_warps * 32; i < 3 * plan.experts; i += stream_warps * 32) {
    scales[i] = load_scale(args, i);
  }
  // The counts lay where the rings are: copies come only after their last reading.
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();

  CopyStream<Format> copies = {plan,
                               args,
                               items,
                               item_count,
                               barriers.full[warp],
                               shared + plan.rings_at + warp * plan.slots * plan.slot_bytes,
                               evict_first_policy()};
  if (tid % 32 == 0) copies.enter_matrix();
  // One copy a warp is on its way while the first activations are read: behind all the copies that
  // fit, those would wait for microseconds.
  if (tid % 32 == 0) copies.issue();
  __syncwarp();
  run_matrices<Format, max_tiles, plain>(plan, args, barriers, copies, outputs, shared);

  // All products are written before any is summed.
  std::uint32_t* arrived = args.counters + plan.max_items;
  if (tid == 0) {
    add_release(arrived, 1);
    wait_for_count(arrived, gridDim.x);
  }
  __syncthreads();
  sum_products(plan, args);
  if (blockIdx.x == 0) {
    for (int i = tid; i < item_count; i += stream_warps * 32) args.counters[i] = 0;
  }
  if (tid == 0) {
    std::uint32_t* left = arrived + 1;
    if (atomicAdd(left, 1U) == gridDim.x - 1) {
      *left = 0;
      *arrived = 0;
    }
  }
}

}  // namespace fewbit::cuda
