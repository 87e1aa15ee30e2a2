// SPDX-License-Identifier: Apache-2.0
// From rows as canonical matrices hold them into layout cuda_int_cells: the same words on the host
// and on a device.
#pragma once

#include "layout/cuda_int_cells.hpp"

namespace fewbit {

// A matrix of two halves of `rows` rows.
struct CudaIntSource {
  const std::uint8_t* codes[2] = {};    // [rows, depth], of int4 two a byte, low nibble = even k
  const std::uint16_t* scales[2] = {};  // [rows, groups]
  const std::uint8_t* zeros[2] = {};    // [rows, groups], as the cells have them; none: past_zero()
  std::int64_t rows = 0;
  std::int64_t depth = 0;        // even
  std::int64_t group = 0;        // k that share a scale, a multiple of 32; 0: all
  int bits = 4;                  // or 8
  std::uint8_t flipped_bit = 0;  // of the codes: 8 where int4 is signed, 128 where int8 is not

  FEWBIT_HD constexpr std::int64_t groups() const {
    return group == 0 ? 1 : (depth + group - 1) / group;
  }
  FEWBIT_HD constexpr std::int64_t group_of(std::int64_t k) const {
    return group == 0 ? 0 : k / group;
  }
  FEWBIT_HD constexpr std::int64_t row_bytes() const { return depth * bits / 8; }
  // Of rows and k past the matrix, and of matrices without zero points.
  FEWBIT_HD constexpr std::uint8_t past_zero() const { return bits == 4 ? 8 : 0; }
};

// A word of a cell of int4, and of int8.
FEWBIT_HD inline std::uint32_t cuda_int4_word(const CudaIntSource& from, std::int64_t unit,
                                              std::int64_t cell, int word) {
  const int m = word / 2 % 2;
  const std::int64_t k = cell * 32 + word / 4 % 4 * 8 + word % 2 * 4;
  std::uint32_t bits = 0x88888888U;
  for (int high = 0; high < 2; ++high) {
    const std::int64_t row = unit * 16 + word / 16 + high * 8;
    for (int e = 0; e < 4; ++e) {
      if (row >= from.rows || k + e >= from.depth) continue;
      const std::uint8_t byte = from.codes[m][row * from.row_bytes() + (k + e) / 2];
      const std::uint32_t code = (e % 2 == 0 ? byte & 15U : byte >> 4U) ^ from.flipped_bit;
      const int bit = 4 * (2 * (e / 2) + high) + 16 * (e % 2);
      bits ^= (code ^ 8U) << bit;
    }
  }
  return bits;
}
FEWBIT_HD inline std::uint32_t cuda_int8_word(const CudaIntSource& from, std::int64_t unit,
                                              std::int64_t cell, int word) {
  const int m = word / 2 % 2;
  const int lane = word % 128 / 4;
  const std::int64_t k = cell * 32 + lane % 4 * 8 + word / 128 * 4 + word % 2 * 2;
  std::uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    const std::int64_t row = unit * 16 + lane / 4 + i % 2 * 8;
    if (row >= from.rows || k + i / 2 >= from.depth) continue;
    const std::uint8_t byte = from.codes[m][row * from.row_bytes() + k + i / 2];
    bits |= static_cast<std::uint32_t>(byte ^ from.flipped_bit) << 8 * i;
  }
  return bits;
}
FEWBIT_HD inline std::uint32_t cuda_int_word(const CudaIntSource& from, std::int64_t unit,
                                             std::int64_t cell, int word) {
  return from.bits == 4 ? cuda_int4_word(from, unit, cell, word)
                        : cuda_int8_word(from, unit, cell, word);
}

// The element of a header, 4 g + 2 m + h, behind which `cell` stands; `past`: what stands for rows
// and k past the matrix.
template <class T>
FEWBIT_HD inline T cuda_int_of_header(const CudaIntSource& from, const T* const (&values)[2],
                                      std::int64_t unit, std::int64_t cell, int index, T past) {
  const std::int64_t row = unit * 16 + index / 4 + index % 2 * 8;
  if (row >= from.rows || cell * 32 >= from.depth) return past;
  return values[index / 2 % 2][row * from.groups() + from.group_of(cell * 32)];
}

}  // namespace fewbit
