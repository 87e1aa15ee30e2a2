// SPDX-License-Identifier: Apache-2.0
// f4_e2m1 weights as the CUDA kernels stream them: codes whose bits lie where a bf16 has them.
//
// A matrix is two halves of n rows (gate and up; or the upper and the lower half of down). A unit
// is 16 rows of each half, over all k; units follow each other. A unit is a row of cells of 32 k:
//
//   128 words of codes   word 4 (4 g + t) + 2 m + s is lane 4 g + t's, half m, rows g and g + 8 of
//   the
//                        unit, k 8 t + 4 s … 8 t + 4 s + 3 of the cell
//   scales               a byte a row and group of k, so that a lane's four lie side by side
//
// The eight codes of a word are pairs p (row g + 8 (p % 2), k of 2 (p / 2) and the next, even k in
// the lower 16 bits). With sign, exponent and mantissa of a code at bits 15, 8, 7 and 6 of its half
// of a bf16 pair, the word is read as: pair 0 as it is, 1 shifted left by 6, 2 rotated right by 4,
// 3 rotated right by 6 but for the mantissa, which is shifted left by 2. No fewer than nine such
// operations give four pairs.
//
// Rows and k past the matrix are zero. The group of 16 has e4m3 scales: stored as five bits of
// exponent (+ 20) and three of mantissa, without sign (it goes into the codes) and with zero as
// zero codes. The group of 32 has e8m0 scales as they are; 2^-127 counts as zero.
#pragma once

#include <bit>

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Bits of a code within the word, by pair and position in it.
FEWBIT_HD constexpr int cuda_f4_bit(int code_bit, int pair, int position) {
  constexpr int target[4] = {6, 7, 8, 15};  // mantissa, exponent, sign in a bf16
  const int at = target[code_bit] + 16 * position;
  switch (pair) {
    case 0:
      return at;
    case 1:
      return at - 6;
    case 2:
      return (at + 4) % 32;
    default:
      return code_bit == 0 ? at - 2 : (at + 6) % 32;
  }
}

// Dims are those of a half.
template <int scale_group>
struct CudaF4Cells {
  static constexpr int group = scale_group;
  static constexpr std::int64_t scale_bytes = 32 * 32 / group;
  static constexpr std::int64_t cell_bytes = 512 + scale_bytes;

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0 && d.k % group == 0; }
  FEWBIT_HD static constexpr std::int64_t units(Dims d) { return (d.n + 15) / 16; }
  FEWBIT_HD static constexpr std::int64_t cells(Dims d) { return (d.k + 31) / 32; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return units(d) * cells(d) * cell_bytes; }

  // Bits of a code in its word.
  FEWBIT_HD static constexpr std::uint32_t code_bits(std::uint8_t code, int pair, int position) {
    std::uint32_t word = 0;
    for (int b = 0; b < 4; ++b) {
      word |= static_cast<std::uint32_t>(code >> b & 1) << cuda_f4_bit(b, pair, position);
    }
    return word;
  }

  FEWBIT_HD static constexpr std::uint8_t stored_code(std::uint8_t code, std::uint8_t scale) {
    if (group == 32) return scale == 0 ? std::uint8_t{0} : code;
    if ((scale & 0x7F) == 0) return 0;
    return static_cast<std::uint8_t>(code ^ (scale >> 7 << 3));
  }
  FEWBIT_HD static constexpr std::uint8_t stored_scale(std::uint8_t scale) {
    if (group == 32) return scale;
    int exponent = scale >> 3 & 15;
    int mantissa = scale & 7;
    if (exponent == 0) {
      if (mantissa == 0) return 0;
      exponent = 1;
      while (mantissa < 8) {
        mantissa *= 2;
        --exponent;
      }
      mantissa -= 8;
    }
    return static_cast<std::uint8_t>((exponent - 7 + 20) << 3 | mantissa);
  }

  // The scale at a byte of a cell's scales: n is half * 16 + row of the unit, k the cell's group.
  FEWBIT_HD static constexpr Element scale_element(std::int64_t byte) {
    constexpr std::int64_t groups = 32 / group;
    return {.n = byte / 2 % 2 * 16 + byte % 2 * 8 + byte / 4 / groups, .k = byte / 4 % groups};
  }
  // Where the scale of (row of half m, group) lies.
  FEWBIT_HD static constexpr std::int64_t scale_place(Dims d, int m, std::int64_t n,
                                                      std::int64_t k_group) {
    constexpr std::int64_t groups = 32 / group;
    const std::int64_t cell = n / 16 * cells(d) + k_group / groups;
    return cell * cell_bytes + 512 + (n % 8 * groups + k_group % groups) * 4 + m * 2 + n % 16 / 8;
  }
};

// Bit `code_bit` (0 mantissa … 3 sign) of every code as a layout of its own, dims those of the
// whole matrix: its first n/2 rows are the first half.
template <int scale_group, int code_bit>
struct CudaF4CodePlane {
  using Cells = CudaF4Cells<scale_group>;
  static constexpr int bits = 1;

  FEWBIT_HD static constexpr Dims half(Dims d) { return {.n = d.n / 2, .k = d.k}; }
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n % 2 == 0 && Cells::accepts(half(d));
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return Cells::bytes(half(d)); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) { return 8 * bytes(d) - d.n * d.k; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t m = n / half(d).n;
    const std::int64_t row = n % half(d).n;
    const std::int64_t cell = row / 16 * Cells::cells(half(d)) + k / 32;
    const std::int64_t word = 4 * (4 * (row % 8) + k % 32 / 8) + 2 * m + k % 8 / 4;
    const auto pair = static_cast<int>(2 * (k % 4 / 2) + row % 16 / 8);
    const int bit = cuda_f4_bit(code_bit, pair, static_cast<int>(k % 2));
    return {.byte = cell * Cells::cell_bytes + 4 * word + bit / 8, .bit = bit % 8};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t within = p.byte % Cells::cell_bytes;
    if (within >= 512) return {.n = -1, .k = -1};
    const std::int64_t cell = p.byte / Cells::cell_bytes;
    const std::int64_t word = within / 4;
    const std::int64_t cells = Cells::cells(half(d));
    for (int pair = 0; pair < 4; ++pair) {
      for (int position = 0; position < 2; ++position) {
        if (cuda_f4_bit(code_bit, pair, position) != within % 4 * 8 + p.bit) continue;
        const std::int64_t row = cell / cells * 16 + pair % 2 * 8 + word / 16;
        const std::int64_t k = cell % cells * 32 + word / 4 % 4 * 8 + word % 2 * 4 + pair / 2 * 2;
        if (row >= half(d).n) return {.n = -1, .k = -1};
        return {.n = word / 2 % 2 * half(d).n + row, .k = k + position};
      }
    }
    return {.n = -1, .k = -1};
  }
};

// The scales, dims [n, groups of k] of the whole matrix.
template <int scale_group>
struct CudaF4CellScales {
  using Cells = CudaF4Cells<scale_group>;
  static constexpr int bits = 8;

  FEWBIT_HD static constexpr Dims half(Dims d) { return {.n = d.n / 2, .k = d.k * scale_group}; }
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n % 2 == 0 && Cells::accepts(half(d));
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return Cells::bytes(half(d)); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) { return 8 * (bytes(d) - d.n * d.k); }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t rows = half(d).n;
    return {.byte = Cells::scale_place(half(d), static_cast<int>(n / rows), n % rows, k), .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t within = p.byte % Cells::cell_bytes;
    if (within < 512) return {.n = -1, .k = -1};
    const std::int64_t cell = p.byte / Cells::cell_bytes;
    const std::int64_t cells = Cells::cells(half(d));
    const Element e = Cells::scale_element(within - 512);
    const std::int64_t row = cell / cells * 16 + e.n % 16;
    if (row >= half(d).n) return {.n = -1, .k = -1};
    return {.n = e.n / 16 * half(d).n + row, .k = cell % cells * (32 / scale_group) + e.k};
  }
};

}  // namespace fewbit
