// SPDX-License-Identifier: Apache-2.0
// From rows as canonical matrices hold them into layout cuda_f8_cells: the same words on the host
// and on a device.
#pragma once

#include "layout/cuda_f8_cells.hpp"

namespace fewbit {

// A matrix of two halves of `rows` rows.
struct CudaF8Source {
  const std::uint8_t* codes[2] = {};  // [rows, depth]
  // [blocks of rows, blocks of k] of the matrix in which a half begins at first_row, a multiple of
  // 16; none: 1.
  const float* scales[2] = {};
  const std::uint8_t* mx_scales[2] = {};  // of MXFP8: [rows, depth/32] e8m0
  std::int64_t first_row[2] = {};
  std::int64_t rows = 0;
  std::int64_t depth = 0;
};

// The codes of a word in its order: row g, even k first, then row g + 8. Past the matrix: 0.
FEWBIT_HD inline std::uint32_t cuda_f8_codes(const CudaF8Source& from, std::int64_t unit,
                                             std::int64_t cell, int word) {
  const int m = word / 2 % 2;
  const int lane = word % 128 / 4;
  const std::int64_t k = cell * 32 + lane % 4 * 8 + word / 128 * 4 + word % 2 * 2;
  std::uint32_t codes = 0;
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = unit * 16 + lane / 4 + i / 2 * 8;
    if (row >= from.rows || k + i % 2 >= from.depth) continue;
    codes |= std::uint32_t{from.codes[m][row * from.depth + k + i % 2]} << 8 * i;
  }
  return codes;
}

// The word of four codes.
FEWBIT_HD inline std::uint32_t cuda_f8_word(std::uint32_t codes) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      word |= (codes >> (8 * i + bit) & 1U) << cuda_f8_bit(bit, i / 2, i % 2);
    }
  }
  return word;
}

// Whether one of four codes is NaN, which has no place among the words.
FEWBIT_HD inline bool cuda_f8_nan(std::uint32_t codes) {
  return (((codes & 0x7F7F7F7FU) + 0x01010101U) & 0x80808080U) != 0;
}

// Byte 4 g + 2 m + h of an MXFP8 cell's scales. Past the matrix: 0.
FEWBIT_HD inline std::uint8_t cuda_mxf8_scale(const CudaF8Source& from, std::int64_t unit,
                                              std::int64_t cell, int index) {
  const std::int64_t row = unit * 16 + index / 4 + index % 2 * 8;
  if (row >= from.rows) return 0;
  return from.mx_scales[index / 2 % 2][row * (from.depth / 32) + cell];
}

FEWBIT_HD inline float cuda_f8_scale(const CudaF8Source& from, std::int64_t unit, std::int64_t cell,
                                     int half) {
  if (from.scales[half] == nullptr) return 1.0F;
  constexpr std::int64_t block = CudaF8Cells::block;
  const std::int64_t row = (from.first_row[half] + unit * 16) / block;
  return from.scales[half][row * ((from.depth + block - 1) / block) + cell * 32 / block];
}

}  // namespace fewbit
