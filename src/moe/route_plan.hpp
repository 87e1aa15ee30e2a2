// SPDX-License-Identifier: Apache-2.0
// How b12x sizes the packing of routes: routes are grouped by expert, and each group is padded to
// whole blocks of block_size_m rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/checked.hpp"

namespace fewbit {

inline constexpr std::array<std::int64_t, 5> route_block_sizes = {8, 16, 32, 48, 64};

struct RouteCount {
  std::int64_t routes = 0;   // tokens * top_k
  std::int64_t experts = 1;  // that ids may name
};

// The smallest block that an average expert fills to less than 9/10; else the largest.
constexpr std::int64_t route_block_size(RouteCount count) {
  for (const std::int64_t block : route_block_sizes) {
    if (10 * count.routes < 9 * block * count.experts) return block;
  }
  return route_block_sizes.back();
}

// Rows after padding, at most: every expert with a route pads less than one block.
constexpr std::int64_t route_slots(RouteCount count, std::int64_t block_size) {
  const std::int64_t padded = count.routes + count.experts * (block_size - 1);
  return count.routes < count.experts ? std::min(count.routes * block_size, padded) : padded;
}

// For any block size.
struct RouteCapacity {
  std::int64_t slots = 0;
  std::int64_t blocks = 0;
};
constexpr RouteCapacity route_capacity(RouteCount count) {
  RouteCapacity capacity;
  for (const std::int64_t block : route_block_sizes) {
    const std::int64_t slots = route_slots(count, block);
    capacity.slots = std::max(capacity.slots, slots);
    capacity.blocks = std::max(capacity.blocks, ceil_div(slots, block));
  }
  return capacity;
}

// f32 elements of the partial sums of a GEMM whose k is split between thread blocks: at most four
// thread blocks for each of a GPU's multiprocessors, with tiles of block_size x 256.
struct SplitGemm {
  std::int64_t columns = 0;
  std::int64_t slots = 0;
  std::int64_t block_size = 0;
  std::int64_t multiprocessors = 0;
};
constexpr std::int64_t split_gemm_elements(const SplitGemm& gemm) {
  const std::int64_t elements = std::min(
      gemm.columns * gemm.slots, 4 * gemm.multiprocessors * gemm.block_size * std::int64_t{256});
  return gemm.block_size == 8 ? 2 * elements : elements;
}

}  // namespace fewbit
