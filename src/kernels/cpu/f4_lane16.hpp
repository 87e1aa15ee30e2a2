// SPDX-License-Identifier: Apache-2.0
// Product of a f4_e2m1 matrix in the layout cpu_f4_lane16 with a panel of f32 tokens.
//
//   y(r, t) = sum over groups g of 16 k   s(r, g) * (sum over k in g of value(code(r, k)) * x(k,
//   t)) s(r, g) = e4m3(scale(r, g)) * global_scale, rounded to f32
//
// The inner sum is one chain of fused multiply-adds in ascending k, the outer one a chain in
// ascending g, whatever the number of tokens and blocks: a token's result depends on nothing but
// its own values. Error against exact arithmetic on weights rounded to f32:
// |y - ref| <= (k/16 + 20) * 2^-24 * sum |w x|, below k * 2^-24 * sum |w x| from k = 32 on. The
// generic level rounds each product too, which the bound includes.
#pragma once

#include <cstdint>

#include "kernels/cpu/panel.hpp"

namespace fewbit {

// Blocks of 16 rows, consecutive in memory. Rows past the matrix hold zero codes and zero scales.
struct F4Lane16Blocks {
  const std::uint8_t* codes = nullptr;   // [blocks][k/8][16] words of 8 nibbles; 64-byte aligned
  const std::uint8_t* scales = nullptr;  // [blocks][k/16][16] f8_e4m3
  float global_scale = 1.0F;
  std::int64_t blocks = 0;
  std::int64_t k = 0;  // multiple of 16
};

// x is a panel of k and y one of 16 blocks features (panel.hpp), aligned to 64 bytes;
// 1 <= tokens <= max_panel_tokens. Reads and writes exactly that, prefetches beyond.
using F4Lane16Fn = void(const F4Lane16Blocks& weight, const float* x, int tokens, float* y);
F4Lane16Fn f4_lane16_generic, f4_lane16_avx2, f4_lane16_avx512;

}  // namespace fewbit
