// SPDX-License-Identifier: Apache-2.0
// From rows as canonical matrices hold them into layout cuda_f4_cells: the same words on the host
// and on a device.
#pragma once

#include "layout/cuda_f4_cells.hpp"

namespace fewbit {

// A matrix of two halves of `rows` rows.
struct CudaF4Source {
  const std::uint8_t* codes[2] = {};   // [rows, depth/2], low nibble = even k
  const std::uint8_t* scales[2] = {};  // [rows, depth/group]
  std::int64_t rows = 0;
  std::int64_t depth = 0;
};

// Word 4 (4 g + t) + 2 m + s of a cell: half m, rows g and g + 8, k 8 t + 4 s … + 3.
template <class Layout>
FEWBIT_HD inline std::uint32_t cuda_f4_word(const CudaF4Source& from, std::int64_t unit,
                                            std::int64_t cell, int word) {
  const int m = word / 2 % 2;
  const std::int64_t k = cell * 32 + word / 4 % 4 * 8 + word % 2 * 4;
  const std::int64_t groups = from.depth / Layout::group;
  std::uint32_t bits = 0;
  for (int high = 0; high < 2; ++high) {
    const std::int64_t row = unit * 16 + word / 16 + high * 8;
    if (row >= from.rows || k >= from.depth) continue;
    const std::uint8_t scale = from.scales[m][row * groups + k / Layout::group];
    for (int e = 0; e < 4; ++e) {
      const std::uint8_t byte = from.codes[m][row * (from.depth / 2) + (k + e) / 2];
      const auto code = static_cast<std::uint8_t>(e % 2 == 0 ? byte & 15 : byte >> 4);
      bits |= Layout::code_bits(Layout::stored_code(code, scale), 2 * (e / 2) + high, e % 2);
    }
  }
  return bits;
}

template <class Layout>
FEWBIT_HD inline std::uint8_t cuda_f4_scale(const CudaF4Source& from, std::int64_t unit,
                                            std::int64_t cell, int byte) {
  const Element e = Layout::scale_element(byte);
  const std::int64_t row = unit * 16 + e.n % 16;
  const std::int64_t group = cell * (32 / Layout::group) + e.k;
  const std::int64_t groups = from.depth / Layout::group;
  if (row >= from.rows || group >= groups) return Layout::stored_scale(0);
  return Layout::stored_scale(from.scales[e.n / 16][row * groups + group]);
}

}  // namespace fewbit
