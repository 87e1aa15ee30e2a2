// SPDX-License-Identifier: Apache-2.0
// The order of rows that TRT-LLM's fused MoE kernels (FlashInfer) read: gate and up rows
// interleaved, then rows shuffled within blocks.
//
// Row q of a block of 32 moves to 8 * (q%4) + q/4 (epilogue tiles of multiples of 128 rows), of a
// block of 16 to 8 * (q%2) + q/2 (others). Gated: first, row n of the first half moves to 2n, of
// the second half to 2 * (n - rows/2) + 1. The kernels want up rows in the first half.
#pragma once

#include "layout/place.hpp"
#include "layout/row_order.hpp"
#include "layout/swizzle_128x4.hpp"

namespace fewbit {

enum class TrtllmBlock { rows_32, rows_16 };
constexpr TrtllmBlock trtllm_block(std::int64_t epilogue_tile_m) {
  return epilogue_tile_m % 128 == 0 ? TrtllmBlock::rows_32 : TrtllmBlock::rows_16;
}

struct TrtllmRows {
  std::int64_t rows = 0;
  Gating gating = Gating::ungated;
  TrtllmBlock block = TrtllmBlock::rows_32;

  FEWBIT_HD constexpr bool accepted() const {
    return rows > 0 && rows % (block == TrtllmBlock::rows_32 ? 32 : 16) == 0;
  }
  // Where stored row n lies.
  FEWBIT_HD constexpr std::int64_t place(std::int64_t n) const {
    std::int64_t row = n;
    if (gating == Gating::gated) row = n < rows / 2 ? 2 * n : 2 * (n - rows / 2) + 1;
    if (block == TrtllmBlock::rows_32) return row / 32 * 32 + 8 * (row % 4) + row % 32 / 4;
    return row / 16 * 16 + 8 * (row % 2) + row % 16 / 2;
  }
  // Which stored row lies there.
  FEWBIT_HD constexpr std::int64_t source(std::int64_t p) const {
    const std::int64_t row = block == TrtllmBlock::rows_32 ? p / 32 * 32 + 4 * (p % 8) + p % 32 / 8
                                                           : p / 16 * 16 + 2 * (p % 8) + p % 16 / 8;
    if (gating == Gating::ungated) return row;
    return row % 2 == 0 ? row / 2 : rows / 2 + row / 2;
  }
};

// Codes: those rows, each as it is.
template <int element_bits, Gating gating, TrtllmBlock block>
struct TrtllmCodes {
  static constexpr int bits = element_bits;

  FEWBIT_HD static constexpr TrtllmRows rows(Dims d) {
    return {.rows = d.n, .gating = gating, .block = block};
  }
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return rows(d).accepted() && d.k > 0 && d.k * bits % 8 == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * (d.k * bits / 8); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t bit = (rows(d).place(n) * d.k + k) * bits;
    return {.byte = bit / 8, .bit = static_cast<int>(bit % 8)};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t index = (p.byte * 8 + p.bit) / bits;
    return {.n = rows(d).source(index / d.k), .k = index % d.k};
  }
};

// Block scales: those rows, then the 128x4 swizzle. dims.k = groups.
template <int element_bits, Gating gating, TrtllmBlock block>
struct TrtllmScales {
  using Swizzle = Swizzle128x4<element_bits>;
  static constexpr int bits = element_bits;

  FEWBIT_HD static constexpr TrtllmRows rows(Dims d) {
    return {.rows = d.n, .gating = gating, .block = block};
  }
  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.n % 128 == 0 && d.k > 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return Swizzle::bytes(d); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) { return Swizzle::spare_bits(d); }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return Swizzle::place(d, rows(d).place(n), k);
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const Element e = Swizzle::inverse(d, p);
    return {.n = rows(d).source(e.n), .k = e.k};
  }
};

}  // namespace fewbit
