// SPDX-License-Identifier: Apache-2.0
// Low-bit weights as the CPU kernels read them: one row a vector lane.
//
// Blocks of 16 rows; in a block, every run of k is 16 words, word r the codes of row r with
// ascending k in ascending bits. 2 and 4-bit codes lie in words of 32 bits: a 64-byte load shifted
// by their bits times i then holds the codes of 16 rows at k + i in the low bits of its lanes.
// 8-bit codes are words by themselves; the 16 k of a row in 3 bits are a word of 32 bits and one of
// 16. Scales and zero points follow the same blocks, one a row and group of k. Rows are padded to
// 16 with zeros.
#pragma once

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

// The codes, dims [n, k].
template <int code_bits, int word_bits>
struct CpuLane16 {
  static_assert(word_bits % 8 == 0 && word_bits % code_bits == 0);
  static constexpr int bits = code_bits;
  static constexpr std::int64_t block_rows = 16;
  static constexpr std::int64_t run = word_bits / code_bits;  // k of one word
  static constexpr std::int64_t step = 16;                    // k of one step of the kernels

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0 && d.k % step == 0; }
  FEWBIT_HD static constexpr std::int64_t padded_rows(Dims d) {
    return ceil_div(d.n, block_rows) * block_rows;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return padded_rows(d) * d.k * bits / 8; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return (padded_rows(d) - d.n) * d.k * bits;
  }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t word =
        (n / block_rows * (d.k / run) + k / run) * block_rows + n % block_rows;
    const std::int64_t bit = word * word_bits + k % run * bits;
    return {.byte = bit / 8, .bit = static_cast<int>(bit % 8)};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t bit = p.byte * 8 + p.bit;
    const std::int64_t word = bit / word_bits;
    const std::int64_t runs = word / block_rows;
    return {.n = runs / (d.k / run) * block_rows + word % block_rows,
            .k = runs % (d.k / run) * run + bit % word_bits / bits};
  }
};
using CpuF4Lane16 = CpuLane16<4, 32>;
using CpuByteLane16 = CpuLane16<8, 8>;
using CpuPairLane16 = CpuLane16<2, 32>;

// 3-bit codes. Those of a row are one stream of bits, low bits first, whose units of 16 bits are
// the elements: dims [n, 3 k / 16]. Every 16 k of 16 rows are 16 words of 32 bits (two units of a
// row) and then 16 of 16 bits (the third one).
struct CpuTripleLane16 {
  static constexpr int bits = 16;
  static constexpr std::int64_t block_rows = CpuF4Lane16::block_rows;
  static constexpr std::int64_t units = 3;  // of 16 k of a row
  static constexpr std::int64_t words_bytes = block_rows * 4;
  static constexpr std::int64_t cell_bytes = words_bytes + block_rows * 2;

  // The dims of this layout for codes [n, k].
  FEWBIT_HD static constexpr Dims of_codes(Dims d) { return {.n = d.n, .k = d.k / 16 * units}; }

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0 && d.k % units == 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) {
    return ceil_div(d.n, block_rows) * (d.k / units) * cell_bytes;
  }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return bytes(d) * 8 - d.n * d.k * bits;
  }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t cell = n / block_rows * (d.k / units) + k / units;
    const std::int64_t row = n % block_rows;
    const std::int64_t unit = k % units;
    const std::int64_t in_cell = unit < 2 ? row * 4 + unit * 2 : words_bytes + row * 2;
    return {.byte = cell * cell_bytes + in_cell, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t cell = p.byte / cell_bytes;
    const std::int64_t in_cell = p.byte % cell_bytes;
    const std::int64_t cells = d.k / units;
    const bool words = in_cell < words_bytes;
    const std::int64_t row = words ? in_cell / 4 : (in_cell - words_bytes) / 2;
    const std::int64_t unit = words ? in_cell % 4 / 2 : 2;
    return {.n = cell / cells * block_rows + row, .k = cell % cells * units + unit};
  }
};

// Scales or zero points, dims [n, groups].
template <int element_bits>
struct CpuLane16Groups {
  static constexpr int bits = element_bits;
  static constexpr std::int64_t block_rows = CpuF4Lane16::block_rows;

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) {
    return ceil_div(d.n, block_rows) * block_rows * d.k * (bits / 8);
  }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return bytes(d) * 8 - d.n * d.k * bits;
  }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t index = (n / block_rows * d.k + k) * block_rows + n % block_rows;
    return {.byte = index * (bits / 8), .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t index = p.byte / (bits / 8);
    const std::int64_t group = index / block_rows;
    return {.n = group / d.k * block_rows + index % block_rows, .k = group % d.k};
  }
};
using CpuF4Lane16Scales = CpuLane16Groups<8>;

}  // namespace fewbit
