// SPDX-License-Identifier: Apache-2.0
// Product of a matrix of low-bit codes in a layout of 16 rows a vector (layout/cpu_lane16.hpp) with
// a panel of f32 tokens.
//
//   y(r, t) = sum over groups g of k   s(r, g) * (sum over k in g of w(r, k) * x(k, t))
//   w(r, k) = value(code(r, k)) - zero(r, g), exact; s(r, g) = scale(r, g) * global_scale in f32
//
// The inner sum is one chain of fused multiply-adds in ascending k over at most 64 k, and longer
// groups are several such sums; the outer one a chain in ascending k, whatever the number of tokens
// and blocks: a token's result depends on nothing but its own values. Error against exact
// arithmetic on weights rounded to f32: with c = min(group, k, 64),
// |y - ref| <= (c + ceil(k/c) + 4) * 2^-24 * sum |w x|, below k * 2^-24 * sum |w x| for long rows.
// The generic level rounds each product too, which the bound includes.
#pragma once

#include <cstdint>

#include "kernels/cpu/panel.hpp"

namespace fewbit {

// What codes are. "zeros": the matrix has zero points.
enum class Lane16Codes : std::uint8_t {
  nvfp4,    // f4_e2m1 with scales e4m3 for groups of 16
  f4_e2m1,  // with any scales
  int4,     // i4
  int4_zeros,
  int8,  // i8
  int8_zeros,
  f8_e4m3,
  nf3,      // a codebook of 8 values
  ternary,  // u2 minus 1: -1, 0, 1, 2
  q4_k,     // blocks of GGUF (layout/cpu_k_blocks.hpp), their scales inside
  q6_k,
};
inline constexpr int lane16_kinds = 11;

// How scales are stored: one a row and group, (f32_blocks) one for a block's 16 rows and group, or
// (with_codes) in blocks of GGUF.
enum class Lane16Scale : std::uint8_t { f8_e4m3, f8_e8m0, f16, bf16, f32, f32_blocks, with_codes };
constexpr std::int64_t lane16_scale_bytes(Lane16Scale format) {
  if (format == Lane16Scale::with_codes) return 0;
  if (format == Lane16Scale::f32 || format == Lane16Scale::f32_blocks) return 4;
  return format == Lane16Scale::f16 || format == Lane16Scale::bf16 ? 2 : 1;
}

// Blocks of 16 rows, consecutive in memory. Rows past the matrix hold zero codes and zero scales;
// with f32_blocks codes that mean zero.
struct Lane16Blocks {
  const std::uint8_t* codes = nullptr;   // [blocks][k/16] cells; aligned to 64 bytes
  const std::uint8_t* scales = nullptr;  // [blocks][groups][16], or f32 [blocks][groups]
  const std::uint8_t* zeros = nullptr;   // [blocks][groups][16] u8 if offset_codes, else i8
  Lane16Scale scale_format = Lane16Scale::f8_e4m3;
  // Integer codes without a sign: 8 or 128 is subtracted from them and from their zero points.
  bool offset_codes = false;
  float global_scale = 1.0F;
  std::int64_t blocks = 0;
  std::int64_t k = 0;      // multiple of 16; of blocks of GGUF of 256
  std::int64_t group = 0;  // k of one scale, a multiple of 16; the last group may be shorter

  std::int64_t groups() const { return (k + group - 1) / group; }
};

// x is a panel of k and y one of 16 blocks features (panel.hpp), aligned to 64 bytes;
// 1 <= tokens <= max_panel_tokens, or max_decoded_tokens at other levels than AVX-512. Reads and
// writes exactly that, prefetches beyond.
using Lane16Fn = void(const Lane16Blocks& weight, const float* x, int tokens, float* y);
// The kernel for codes at a level.
using Lane16KernelOf = Lane16Fn*(Lane16Codes codes);
Lane16KernelOf lane16_generic, lane16_neon, lane16_avx2, lane16_avx512;

// Bytes of 16 rows x 16 k of codes, with the scales that lie among them.
constexpr std::int64_t lane16_cell_bytes(Lane16Codes codes) {
  switch (codes) {
    case Lane16Codes::ternary:
      return 64;
    case Lane16Codes::nf3:
      return 96;
    case Lane16Codes::q4_k:
      return 144;
    case Lane16Codes::q6_k:
      return 210;
    case Lane16Codes::nvfp4:
    case Lane16Codes::f4_e2m1:
    case Lane16Codes::int4:
    case Lane16Codes::int4_zeros:
      return 128;
    default:
      return 256;
  }
}
constexpr int lane16_code_bits(Lane16Codes codes) {
  return static_cast<int>(lane16_cell_bytes(codes) / 32);
}
constexpr bool lane16_in_blocks(Lane16Codes codes) {
  return codes == Lane16Codes::q4_k || codes == Lane16Codes::q6_k;
}

}  // namespace fewbit
