// SPDX-License-Identifier: Apache-2.0
// How one launch of the streaming MoE kernel is laid out: plain numbers, made by the backend's
// plan.
#pragma once

#include <cstdint>

namespace fewbit::cuda {

// One matrix of an expert: units of 32 rows (16 of each half), each a row of cells of 32 k. The
// warps that share a unit take equal runs of its cells, and read them piece by piece.
struct StreamMatrix {
  int rows_half = 0;    // rows of each half
  int depth = 0;        // k
  int units = 0;        // ceil(rows_half / 16)
  int cells = 0;        // ceil(depth / 32)
  int split = 1;        // warps that share a unit; a power of two, at most stream_warps
  int warp_cells = 0;   // of a unit, for one warp; the last warps may have fewer or none
  int piece_cells = 0;  // of one copy, which fits a slot
  int cell_bytes = 0;   // with its part of what cells share
  long long expert_bytes = 0;
};

struct StreamPlan {
  int tokens = 0;
  int hidden = 0;  // of a result
  int top_k = 0;
  int x_routes = 0;  // routes that share a row of x: top_k, or 1 where each has its own
  int experts = 0;
  int blocks = 0;       // thread blocks, all resident at once
  int token_tiles = 1;  // tiles of 8 tokens of an expert that are worked on at once: 1, 2 or 4
  int slots = 0;        // of a warp's ring
  int slot_bytes = 0;
  int max_items = 0;  // (expert, 8 * token_tiles of its routes)
  int counters = 0;   // 32-bit words
  StreamMatrix fc1;   // no units: a dense layer, whose only matrix is fc2
  StreamMatrix fc2;
  // Shared memory, bytes from its beginning.
  int items_at = 0;   // RouteItem [max_items]
  int routes_at = 0;  // int [tokens * top_k], then their router weights
  int scales_at = 0;  // f32 [experts, 3]: gate, up, down
  int counts_at = 0;  // u16 [warps, experts], where the rings are later
  int tokens_at = 0;  // activations of the items in work
  int tokens_bytes = 0;
  int partials_at = 0;  // f32 sums of the warps, two buffers
  int rings_at = 0;
  int shared_bytes = 0;
};

inline constexpr int stream_warps = 16;
inline constexpr int stream_max_slots = 8;
inline constexpr int stream_piece_cells = 4;  // of a copy, where there are as many

}  // namespace fewbit::cuda
