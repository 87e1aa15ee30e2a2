// SPDX-License-Identifier: Apache-2.0
// From (token, slot) -> expert to expert -> routes. A route is one chosen expert of one token; its
// number is token * top_k + slot.
#pragma once

#include <cstdint>
#include <span>

#include "core/hd.hpp"

namespace fewbit {

inline constexpr std::int32_t no_expert = -1;

// The local expert of an id, or no_expert: ids outside the map (or, without a map, outside
// [0, experts)) and map entries outside [0, experts) are dropped. map_size 0: ids are local.
FEWBIT_HD constexpr std::int32_t local_expert(std::int32_t id, const std::int32_t* map,
                                              std::int64_t map_size, std::int64_t experts) {
  if (map_size > 0) {
    if (id < 0 || id >= map_size) return no_expert;
    id = map[id];
  }
  return id >= 0 && id < experts ? id : no_expert;
}

// Buffers of the caller, all written by sort_routes.
struct RouteBuffers {
  std::span<std::int32_t> counts;   // [experts] routes of each expert
  std::span<std::int32_t> offsets;  // [experts + 1] where an expert's routes begin in `routes`
  std::span<std::int32_t> routes;   // [topk_ids.size()] by expert, rising route numbers inside one
};

// Sorts routes by local expert and returns how many were kept (= offsets[experts]); entries of
// `routes` past it are no_expert. Dropped ids are left out, an expert named twice by one token
// keeps both routes. Needs at most 2^31 - 1 routes and buffers of the stated sizes. O(routes +
// experts), allocates nothing, the same order every time.
std::int32_t sort_routes(std::span<const std::int32_t> topk_ids,
                         std::span<const std::int32_t> expert_map, const RouteBuffers& buffers);

}  // namespace fewbit
