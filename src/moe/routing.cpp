// SPDX-License-Identifier: Apache-2.0
#include "moe/routing.hpp"

#include <algorithm>
#include <cassert>

namespace fewbit {

std::int32_t sort_routes(std::span<const std::int32_t> topk_ids,
                         std::span<const std::int32_t> expert_map, const RouteBuffers& buffers) {
  const std::size_t experts = buffers.counts.size();
  assert(buffers.offsets.size() == experts + 1 && buffers.routes.size() == topk_ids.size());
  const auto expert_of = [&](std::int32_t id) {
    return local_expert(id, expert_map.data(), static_cast<std::int64_t>(expert_map.size()),
                        static_cast<std::int64_t>(experts));
  };

  std::ranges::fill(buffers.counts, 0);
  for (const std::int32_t id : topk_ids) {
    const std::int32_t expert = expert_of(id);
    if (expert != no_expert) ++buffers.counts[static_cast<std::size_t>(expert)];
  }
  std::int32_t total = 0;
  for (std::size_t e = 0; e < experts; ++e) {
    buffers.offsets[e] = total;
    total += buffers.counts[e];
  }
  buffers.offsets[experts] = total;

  std::ranges::fill(buffers.routes, no_expert);
  std::ranges::fill(buffers.counts, 0);
  for (std::size_t route = 0; route < topk_ids.size(); ++route) {
    const std::int32_t expert = expert_of(topk_ids[route]);
    if (expert == no_expert) continue;
    const auto e = static_cast<std::size_t>(expert);
    const std::int32_t place = buffers.offsets[e] + buffers.counts[e]++;
    buffers.routes[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(route);
  }
  return total;
}

}  // namespace fewbit
