// SPDX-License-Identifier: Apache-2.0
// How the grouped MoE kernels run a call: plain numbers, made by the backend's plan.
#pragma once

#include <cstdint>

namespace fewbit::cuda {

inline constexpr int grouped_item_rows = 128;  // routes of an expert that share a tile, at most
inline constexpr int grouped_step = 64;        // k of a stage
inline constexpr int grouped_stages = 8;
inline constexpr int grouped_max_experts = 1024;

// A piece of an expert's routes: `count` of them, in rows first_row … of the sorted order, which
// are padded to a multiple of 8.
struct GroupedItem {
  int expert;
  int first_row;
  int count;
  int rows;
};

struct GroupedPlan {
  int tokens = 0;
  int top_k = 0;
  int x_routes = 0;  // routes that share a row of x: top_k, or 1 where each has its own
  int experts = 0;
  int hidden = 0;  // multiples of grouped_step
  int inner = 0;
  int gathered = 0;  // k of the activations of a call: hidden, or inner of a dense layer
  int units1 = 0;    // of fc1 and fc2: 16 rows of each half; 0: a dense layer is fc2 alone
  int units2 = 0;
  int blocks = 0;     // multiprocessors
  int item_rows = 0;  // 32, 64 or 128: the most that an item has
  int max_items = 0;  // of any routing
  int max_rows = 0;
  // The scratch, bytes from its beginning.
  long long items_count_at = 0;  // int
  long long experts_at = 0;      // ExpertRows [experts]
  long long items_at = 0;        // GroupedItem [max_items]
  long long row_weight_at = 0;   // f32 [max_rows]
  long long route_row_at = 0;    // int [tokens * top_k]; -1: adds nothing
  long long x_at = 0;            // bf16 [max_rows, gathered], as products read them
  long long activated_at = 0;    // bf16 [max_rows, inner], likewise; of a dense layer the same
  long long products_at = 0;     // f32 [max_rows, hidden]
  long long scratch_bytes = 0;
};

}  // namespace fewbit::cuda
