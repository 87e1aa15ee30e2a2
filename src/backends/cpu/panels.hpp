// SPDX-License-Identifier: Apache-2.0
// How tokens are cut into panels and work into even, fixed shares.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/lane16_tiles.hpp"
#include "kernels/cpu/panel.hpp"

namespace fewbit::cpu {

// Tokens of one call that share the workspace; longer calls are cut. Enough to make the arithmetic
// the limit, few enough to keep the workspace small.
inline constexpr std::int64_t max_pass_tokens = 1024;

// How tokens are cut into panels of as equal a size as can be, so that none is left with a token or
// two: of at most `most` tokens, all but the last a multiple of `unit`, which divides `most`.
struct PanelCut {
  std::int64_t most = max_panel_tokens;
  std::int64_t unit = 1;

  constexpr std::int64_t panels(std::int64_t tokens) const { return (tokens + most - 1) / most; }
  // First token of panel p of panels(tokens).
  constexpr std::int64_t begin(std::int64_t tokens, std::int64_t p) const {
    const std::int64_t even = tokens * p / panels(tokens);
    return std::min(tokens, (even + unit - 1) / unit * unit);
  }
};
// Rows of 16 results, a token and block of one each, that wait on the stack.
inline constexpr std::int64_t panel_rows = 8 * max_panel_tokens;
static_assert(panel_rows >= max_decoded_tokens);
// Blocks of a panel with so many tokens that these hold.
constexpr std::int64_t waiting_blocks(std::int64_t tokens) {
  return std::min<std::int64_t>(8, panel_rows / tokens);
}

// For tiles: as many tokens of k values as stay in the second-level cache beside the weights.
constexpr PanelCut tile_cut(std::int64_t k) {
  constexpr std::int64_t operand_bytes = 1 << 20;
  const std::int64_t fit = operand_bytes / (tile_row(k) * 2) / 32 * 32;
  return {.most = std::clamp<std::int64_t>(fit, 64, max_tile_tokens), .unit = tile_tokens};
}

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// Share `worker` of `workers` of [0, count).
constexpr Range share(std::int64_t count, int worker, int workers) {
  return {count * worker / workers, count * (worker + 1) / workers};
}

}  // namespace fewbit::cpu
