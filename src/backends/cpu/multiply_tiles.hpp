// SPDX-License-Identifier: Apache-2.0
// Blocks of one matrix, or of two of a form side by side, times the operand of some tokens.
#pragma once

#include "backends/cpu/matrix.hpp"
#include "backends/cpu/panels.hpp"

namespace fewbit::cpu {

struct TileTokens {
  const std::uint16_t* x = nullptr;
  std::int64_t tokens = 0;
};
// Where results go: 16 floats every `token` floats for a token, every `block` floats for a block.
struct TileResults {
  float* first = nullptr;
  std::int64_t token = 16;
  std::int64_t block = 0;
};

// Blocks of the range, two at a time; `to` is the first one's.
inline void multiply_tiles(const Matrix& matrix, Range blocks, const TileTokens& tokens,
                           const TileResults& to) {
  const std::int64_t pairs = (blocks.end - blocks.begin) / 2;
  Lane16Tiles run{.left = matrix.packed_from(blocks.begin),
                  .right = {},
                  .pairs = pairs,
                  .step = 2,
                  .x = tokens.x,
                  .tokens = tokens.tokens,
                  .left_y = to.first,
                  .right_y = to.first + to.block,
                  .y_token = to.token,
                  .y_pair = 2 * to.block};
  if (pairs > 0) {
    run.right = matrix.packed_from(blocks.begin + 1);
    matrix.tiles()(run);
  }
  if ((blocks.end - blocks.begin) % 2 == 0) return;
  run.left = matrix.packed_from(blocks.end - 1);
  run.right = {};
  run.left_y = to.first + 2 * pairs * to.block;
  run.pairs = 1;
  matrix.tiles()(run);
}

// The same blocks of both, each into its own results, which are laid out alike.
inline void multiply_tiles_of_two(const Matrix& left, const Matrix& right, Range blocks,
                                  const TileTokens& tokens, const TileResults& to, float* right_y) {
  left.tiles()({.left = left.packed_from(blocks.begin),
                .right = right.packed_from(blocks.begin),
                .pairs = blocks.end - blocks.begin,
                .step = 1,
                .x = tokens.x,
                .tokens = tokens.tokens,
                .left_y = to.first,
                .right_y = right_y,
                .y_token = to.token,
                .y_pair = to.block});
}

}  // namespace fewbit::cpu
