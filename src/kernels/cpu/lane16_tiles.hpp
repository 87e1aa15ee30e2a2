// SPDX-License-Identifier: Apache-2.0
// Product of lane16 codes (lane16.hpp) with bf16 tokens by tiles: a register of 16 lines of 64
// bytes. A pair of blocks of 16 rows at a time, whose codes become bf16 tiles of 32 k once and
// serve all tokens.
//
//   y(t, r) = sum over groups g of k   s(r, g) * (sum over k in g of v(r, k) * x(t, k))
//
// v is exact in bf16: codes minus their zero points. Of e2m1 with scales e4m3 or e8m0 it holds the
// scale too, the whole k is one group and s the global scale, where all scales of the pair are
// ordinary: e4m3 without sign and no NaN, e8m0 between 2^-100 and 2^100.
//
// Dot products of bf16 pairs, where vector registers take the place of tiles, go block by block
// and scale as lane16.hpp says, whatever the scales, v being the codes alone. One is two fused
// multiply-adds in f32, of the higher k first, rounded to nearest each, so that chains and bound
// are those of lane16.hpp too, in another order of every 8 k (4 0 5 1 6 2 7 3). They flush as tiles
// do.
//
// Error, with tiles that round as the manual says (a fused chain of 16 each for even and odd slots,
// their sum, the sum of the tile and the one before): each product is rounded at most 18 + k/32
// times, and once more for every group; for k >= 32 that is below k * 2^-24 * sum |w x|. Tiles
// flush subnormal operands, products and sums: below 2^-126 * max(1, |s|) a product or x may count
// as 0. A token's result depends on nothing but its own values.
#pragma once

#include <cstdint>

#include "kernels/cpu/lane16.hpp"
#include "kernels/cpu/tile_operand.hpp"

namespace fewbit {

// Most tokens of a run.
inline constexpr std::int64_t max_tile_tokens = 256;

struct Lane16Tiles {
  Lane16Blocks left, right;  // of one form; the first pair's blocks. No right codes: one alone
  std::int64_t pairs = 1;
  std::int64_t step = 1;  // blocks from a pair to the next, in both
  // Tokens as tile_operand.hpp says, aligned to 64 bytes. A line more is read and not used.
  const std::uint16_t* x = nullptr;
  std::int64_t tokens = 0;  // 1 to max_tile_tokens
  // Results of a block's 16 rows: 16 f32, aligned to 64 bytes, every y_token floats a token, every
  // y_pair floats a pair.
  float* left_y = nullptr;
  float* right_y = nullptr;
  std::int64_t y_token = 16;
  std::int64_t y_pair = 0;
};
using Lane16TilesFn = void(const Lane16Tiles& run);
// The kernel for codes, none for nf3 and q4_k, whose values are not exact in bf16. amx: on a CPU
// that has AMX-BF16 and a process that may use it, and none for q6_k; dots: on one that has AVX-512
// BF16.
using Lane16TilesOf = Lane16TilesFn*(Lane16Codes codes);
Lane16TilesOf lane16_amx, lane16_dots_avx512;

}  // namespace fewbit
