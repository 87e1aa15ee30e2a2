// SPDX-License-Identifier: Apache-2.0
// How tokens stand for products by tiles, as bf16.
//
// Tiles of up to 16 tokens, as few and of as equal a size as can be; in a tile of `rows` tokens
// every 32 k are `rows` lines of 64 bytes, one a token. In a line every 8 k stand in the order 0 4
// 1 5 2 6 3 7: the pairs that meet a register of lane16 codes shifted by 4 i, whose words hold k =
// i and k = i + 4 (layout/cpu_lane16.hpp). k is padded to 32 with zeros.
#pragma once

#include <cstdint>

#include "moe/activation.hpp"

namespace fewbit {

// Whether CPUs of this architecture can have tiles. Where not, nothing may name the functions
// below.
#if defined(__x86_64__)
inline constexpr bool has_tiles = true;
#else
inline constexpr bool has_tiles = false;
#endif

inline constexpr std::int64_t tile_tokens = 16;
inline constexpr std::int64_t tile_k = 32;

// bf16 values of one token.
constexpr std::int64_t tile_row(std::int64_t k) { return (k + tile_k - 1) / tile_k * tile_k; }
// Tiles of `tokens` tokens; the first token of tile i, or their number after the last one.
constexpr std::int64_t tile_count(std::int64_t tokens) {
  return (tokens + tile_tokens - 1) / tile_tokens;
}
constexpr std::int64_t tile_begin(std::int64_t tokens, std::int64_t i) {
  return tokens * i / tile_count(tokens);
}
// The tile of token t, and how many tokens that has.
constexpr std::int64_t tile_of(std::int64_t tokens, std::int64_t t) {
  return ((t + 1) * tile_count(tokens) - 1) / tokens;
}
constexpr std::int64_t tile_rows(std::int64_t tokens, std::int64_t t) {
  const std::int64_t i = tile_of(tokens, t);
  return tile_begin(tokens, i + 1) - tile_begin(tokens, i);
}
// Where k stands among 8.
constexpr std::int64_t tile_slot(std::int64_t k) { return k % 4 * 2 + k / 4; }
// Values that may be read beyond an operand: a line (lane16_tiles.hpp).
inline constexpr std::int64_t tile_slack = tile_k;
// Place of (token t, k) of `tokens` tokens with rows of tile_row(k) values.
constexpr std::int64_t tile_place(std::int64_t tokens, std::int64_t row, std::int64_t t,
                                  std::int64_t k) {
  const std::int64_t first = tile_begin(tokens, tile_of(tokens, t));
  const std::int64_t line = k / tile_k * tile_rows(tokens, t) + t - first;
  return first * row + line * tile_k + k % tile_k / 8 * 8 + tile_slot(k % 8);
}

// One token of n bf16 values, of any alignment, into its lines: `to` is its first one, aligned to
// 64 bytes, the others follow every `rows` lines. Zeros past n. Returns the largest |x|, NaN left
// out.
float tile_load(const std::uint8_t* values, std::int64_t n, std::int64_t rows, std::uint16_t* to);
// The same with value order[i] at k = i; n is a multiple of 16.
float tile_load_ordered(const std::uint8_t* values, const std::int32_t* order, std::int64_t n,
                        std::int64_t rows, std::uint16_t* to);
// 16 features k to k + 15 of every token: values [tokens][16] in f32, rounded to bf16 (nearest,
// ties to even), into an operand of all of them with rows of `row` values. k is a multiple of 16.
void tile_store_features(const float* values, std::int64_t tokens, std::int64_t row, std::int64_t k,
                         std::uint16_t* operand);

// out = sum over i of weights[i] * rows[i], added in that order in f32, rounded to bf16. n is a
// multiple of 16; rows are aligned to 64 bytes.
void sum_rows_bf16(const float* const* rows, const float* weights, std::int64_t count,
                   std::int64_t n, std::uint8_t* out);

// gate = gate' / (1 + exp(-alpha gate')) * (up' + beta), of gate' = min(gate, limit) and up' = up
// clamped to +-limit; NaN stays NaN. alpha 1, beta 0 is silu(gate) * up. Error below 8 * 2^-24 of
// |gate' (up' + beta)|. count is a multiple of 16; both aligned to 64 bytes.
void gate_by_sigmoid(const ActivationConstants& constants, std::int64_t count, float* gate,
                     const float* up);

}  // namespace fewbit
