// SPDX-License-Identifier: Apache-2.0
// From rows as canonical matrices hold them into layout cuda_int_cells: the same words on the host
// and on a device.
#pragma once

#include "layout/cuda_nf3_codes.hpp"

namespace fewbit {

// A matrix of two halves of `rows` rows.
struct CudaIntSource {
  const std::uint8_t* codes[2] = {};    // [rows, depth], a stream of bits a row, low bits first
  const std::uint16_t* scales[2] = {};  // [rows, groups]
  const std::uint8_t* zeros[2] = {};    // [rows, groups], as the cells have them; none: past_zero()
  std::int64_t rows = 0;
  std::int64_t depth = 0;        // rows of codes are whole bytes
  std::int64_t group = 0;        // k that share a scale, a multiple of 32; 0: all
  int bits = 4;                  // or 2, 3, 8
  std::uint8_t flipped_bit = 0;  // of the codes: 8 where int4 is signed, 128 where int8 is not

  FEWBIT_HD constexpr std::int64_t groups() const {
    return group == 0 ? 1 : (depth + group - 1) / group;
  }
  FEWBIT_HD constexpr std::int64_t group_of(std::int64_t k) const {
    return group == 0 ? 0 : k / group;
  }
  FEWBIT_HD constexpr std::int64_t row_bytes() const { return depth * bits / 8; }
  // Of rows and k past the matrix, and of matrices without zero points.
  FEWBIT_HD constexpr std::uint8_t past_zero() const { return bits == 4 ? 8 : bits == 2 ? 1 : 0; }
  // Of 2 or 3 bits; past the matrix past_zero().
  FEWBIT_HD constexpr std::uint8_t low_code(int m, std::int64_t row, std::int64_t k) const {
    if (row >= rows || k >= depth) return past_zero();
    const std::uint8_t* of_row = codes[m] + row * row_bytes();
    const std::int64_t first = k * bits / 8;
    const std::int64_t last = (k * bits + bits - 1) / 8;
    unsigned code = of_row[first];
    if (last != first) code |= static_cast<unsigned>(of_row[last]) << 8;
    return static_cast<std::uint8_t>(code >> k * bits % 8 & ((1U << bits) - 1U));
  }
};

// A word of a ternary cell, and of cells of NF3, int4 and int8.
FEWBIT_HD inline std::uint32_t cuda_ternary_word(const CudaIntSource& from, std::int64_t unit,
                                                 std::int64_t cell, int word) {
  const std::int64_t k = cell * 32 + word / 2 % 4 * 8;
  std::uint32_t bits = 0;
  for (int i = 0; i < 16; ++i) {
    const std::int64_t row = unit * 16 + word / 8 + i % 2 * 8;
    const std::uint32_t code = from.low_code(word % 2, row, k + i / 4 * 2 + i / 2 % 2);
    bits |= code << (2 * (i / 4 * 2 + i % 2) + 16 * (i / 2 % 2));
  }
  return bits;
}
FEWBIT_HD inline std::uint32_t cuda_nf3_word(const CudaIntSource& from, std::int64_t unit,
                                             std::int64_t cell, int word) {
  std::uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) {
    const int plane = word < 64 ? i % 2 : 2;
    const CudaIntCode at = cuda_nf3_at({.byte = 4 * word + i / 8, .bit = i % 8}, plane);
    const std::uint8_t code = from.low_code(at.half, unit * 16 + at.row, cell * 32 + at.k);
    bits |= static_cast<std::uint32_t>(cuda_nf3_stored(code) >> plane & 1) << i;
  }
  return bits;
}
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
  switch (from.bits) {
    case 2:
      return cuda_ternary_word(from, unit, cell, word);
    case 3:
      return cuda_nf3_word(from, unit, cell, word);
    case 4:
      return cuda_int4_word(from, unit, cell, word);
    default:
      return cuda_int8_word(from, unit, cell, word);
  }
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
