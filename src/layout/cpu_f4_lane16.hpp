// SPDX-License-Identifier: Apache-2.0
// f4_e2m1 weights as the CPU kernels read them: one row a vector lane.
//
// Blocks of 16 rows; in a block, every run of 8 k is 16 words of 32 bits, word r the codes of row r
// with ascending k in ascending nibbles. A 64-byte load shifted by 4 i then holds the codes of 16
// rows at k + i in the low bits of its lanes. Scales follow the same blocks, a byte a row and group
// of 16 k. Rows are padded to 16 with zero codes and zero scales.
#pragma once

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

// The codes, dims [n, k].
struct CpuF4Lane16 {
  static constexpr int bits = 4;
  static constexpr std::int64_t block_rows = 16;
  static constexpr std::int64_t run = 8;     // k of one word
  static constexpr std::int64_t group = 16;  // k of one scale

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0 && d.k % group == 0; }
  FEWBIT_HD static constexpr std::int64_t padded_rows(Dims d) {
    return ceil_div(d.n, block_rows) * block_rows;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return padded_rows(d) * d.k / 2; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return (padded_rows(d) - d.n) * d.k * bits;
  }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t word =
        (n / block_rows * (d.k / run) + k / run) * block_rows + n % block_rows;
    return {.byte = word * 4 + k % run / 2, .bit = static_cast<int>(k % 2 * 4)};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t word = p.byte / 4;
    const std::int64_t runs = word / block_rows;
    return {.n = runs / (d.k / run) * block_rows + word % block_rows,
            .k = runs % (d.k / run) * run + p.byte % 4 * 2 + p.bit / 4};
  }
};

// The scales, dims [n, k/16] of bytes.
struct CpuF4Lane16Scales {
  static constexpr int bits = 8;
  static constexpr std::int64_t block_rows = CpuF4Lane16::block_rows;

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) {
    return ceil_div(d.n, block_rows) * block_rows * d.k;
  }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return (bytes(d) - d.n * d.k) * bits;
  }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return {.byte = (n / block_rows * d.k + k) * block_rows + n % block_rows, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t group = p.byte / block_rows;
    return {.n = group / d.k * block_rows + p.byte % block_rows, .k = group % d.k};
  }
};

}  // namespace fewbit
