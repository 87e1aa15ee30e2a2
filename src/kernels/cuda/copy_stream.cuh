// SPDX-License-Identifier: Apache-2.0
// Which part of the work a thread block has, and the copies that bring a warp's weights.
#pragma once

#include "kernels/cuda/block_routing.cuh"
#include "kernels/cuda/moe_f4.hpp"

namespace fewbit::cuda {

// A block's run of the work on one matrix.
struct StreamRun {
  int begin;
  int end;
};

__device__ __forceinline__ StreamRun run_of_block(int items, int units) {
  // The plan keeps items * units * blocks below 2^32.
  const unsigned total = static_cast<unsigned>(items) * static_cast<unsigned>(units);
  return {static_cast<int>(total * blockIdx.x / gridDim.x),
          static_cast<int>(total * (blockIdx.x + 1) / gridDim.x)};
}

// A warp's copies, in the order in which it uses them. One lane keeps and issues them.
template <class Format>
struct CopyStream {
  const StreamPlan& plan;
  const MoeF4Args& args;
  const RouteItem* items;
  int item_count;
  std::uint64_t* full;  // this warp's barriers
  std::uint8_t* ring;   // this warp's slots
  std::uint64_t policy;
  int slot;   // where the next copy goes
  int piece;  // bytes of a whole copy
  int left;   // bytes of this warp's part of the unit that are not yet on their way
  const std::uint8_t* from;
  int matrix;
  int unit;      // of the block's run
  int end;       // of the run
  int item;      // of the unit
  int item_end;  // first unit of the next item

  // Issues the next copy, if there is one.
  __device__ __forceinline__ void issue() {
    if (left == 0) return;
    const int bytes = min(piece, left);
    const std::uint32_t barrier = shared_address(full + slot);
    barrier_expect(barrier, bytes);
    bulk_copy(shared_address(ring + slot * plan.slot_bytes), from, bytes, barrier, policy);
    if (++slot == plan.slots) slot = 0;
    from += bytes;
    left -= bytes;
    if (left == 0) next_unit();
  }
  __device__ __forceinline__ void next_unit() {
    const StreamMatrix& m = matrix == 0 ? plan.fc1 : plan.fc2;
    unit += stream_warps / m.split;
    if (unit < end) {
      enter_unit(m);
    } else {
      ++matrix;
      enter_matrix();
    }
  }
  __device__ __forceinline__ void enter_unit(const StreamMatrix& m) {
    while (unit >= item_end) {
      ++item;
      item_end += m.units;
    }
    const int cell = (threadIdx.x / 32 & (m.split - 1)) * m.warp_cells;
    const int cells = min(m.warp_cells, m.cells - cell);
    const std::uint8_t* weights = matrix == 0 ? args.w13 : args.w2;
    from =
        weights + items[item].expert * m.expert_bytes +
        static_cast<long long>(unit - (item_end - m.units)) * Format::bytes_of_cells(m, m.cells) +
        Format::bytes_of_cells(m, cell);
    left = Format::bytes_of_cells(m, cells);
    piece = Format::bytes_of_cells(m, m.piece_cells);
  }
  __device__ __forceinline__ void enter_matrix() {
    const int warp = threadIdx.x / 32;
    left = 0;
#pragma unroll 1
    for (; matrix < 2; ++matrix) {
      const StreamMatrix& m = matrix == 0 ? plan.fc1 : plan.fc2;
      const StreamRun run = run_of_block(item_count, m.units);
      unit = run.begin + warp / m.split;
      end = run.end;
      if (unit >= end || (warp & (m.split - 1)) * m.warp_cells >= m.cells) continue;
      item = static_cast<int>(static_cast<unsigned>(unit) / static_cast<unsigned>(m.units));
      item_end = (item + 1) * m.units;
      enter_unit(m);
      return;
    }
  }
};

}  // namespace fewbit::cuda
