// SPDX-License-Identifier: Apache-2.0
// Causal attention of some query rows over one block of keys, by streaming softmax.
//
// With m, l, a = maximum, sum, accumulator of a row before the block and s_j = q . k_j:
//
//   m' = max(m, max_j s_j)   p_j = exp(s_j - m')   f = exp(m - m')
//   l' = l f + sum_j p_j     a' = a f + sum_j p_j v_j            over the visible keys j
//
// and a / l after the last block is the attention output. Every product and sum is f32; the order
// of a row's sums depends on neither the number of rows nor the other rows, and a block that a row
// doesn't see leaves it as it was, bit for bit.
#pragma once

#include <cstdint>

namespace fewbit {

constexpr int attention_keys = 64;     // keys of a block
constexpr int attention_row_tile = 4;  // rows are padded to a multiple
constexpr int attention_dim_tile = 32;

// All f32 arrays are contiguous.
struct AttentionTile {
  const float* queries = nullptr;         // [rows][dim], times 1/sqrt(dim)
  const float* keys = nullptr;            // [dim][64]
  const float* values = nullptr;          // [64][padded_dim]
  const std::int32_t* visible = nullptr;  // [rows] the first keys of the block that a row sees
  float* scores = nullptr;                // [rows][64] scratch
  float* accumulator = nullptr;           // [rows][padded_dim]
  float* maximum = nullptr;               // [rows] at first -infinity; some key is seen by block 0
  float* sum = nullptr;                   // [rows]
  std::int64_t rows = 0;                  // multiple of 4
  std::int64_t dim = 0;
  std::int64_t padded_dim = 0;  // multiple of 32, at least dim
  int keys_used = 0;            // 1 to 64; values of the others are not read
};
using AttentionTileFn = void(const AttentionTile& tile);
AttentionTileFn attention_tile_generic, attention_tile_avx2, attention_tile_avx512;

}  // namespace fewbit
