// SPDX-License-Identifier: Apache-2.0
// Product of a row-major 16/32-bit matrix, read in place, with a panel of f32 tokens.
//
//   y(r, t) = scale * sum over k   w(r, k) * x(k, t)
//
// Lane l sums the k with k % lanes = l in ascending order by fused multiply-adds (the generic level
// rounds each product), then the lanes are summed in a fixed tree and multiplied by the scale:
// whatever the number of tokens and rows, so a token's result depends on nothing but its own
// values. |y - ref| <= (ceil(k/lanes) + 7) * 2^-24 * sum |w x|, lanes 8 (AVX2,
// NEON) or 16.
#pragma once

#include <cstdint>

#include "kernels/cpu/panel.hpp"

namespace fewbit {

struct PlainRows {
  const std::uint8_t* values = nullptr;  // [rows, k], of any alignment
  float scale = 1.0F;
  std::int64_t rows = 0;
  std::int64_t k = 0;
};

// x is a panel of k and y one of `rows` features (panel.hpp), aligned to 64 bytes;
// 1 <= tokens <= max_panel_tokens. Reads nothing past the last row.
using PlainRowsFn = void(const PlainRows& weight, const float* x, int tokens, float* y);
PlainRowsFn bf16_rows_generic, bf16_rows_neon, bf16_rows_avx2, bf16_rows_avx512;
PlainRowsFn f16_rows_generic, f16_rows_neon, f16_rows_avx2, f16_rows_avx512;
PlainRowsFn f32_rows_generic, f32_rows_neon, f32_rows_avx2, f32_rows_avx512;

}  // namespace fewbit
