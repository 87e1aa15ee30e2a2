// SPDX-License-Identifier: Apache-2.0
// f8_e4m3 weights as the CUDA kernels stream them: like layout/cuda_f4_cells.hpp, with codes of a
// byte and an f32 scale for 16 rows.
//
// A matrix is two halves of n rows, a unit 16 rows of each half over all k, a row of cells of 32 k:
//
//   2 x 128 words  word 128 s + 4 (4 g + t) + 2 m + i is lane 4 g + t's: half m, rows g and g + 8,
//                  k 8 t + 4 s + 2 i and the next of the cell
//   2 scales       f32, of the unit's rows of each half; then 8 bytes of zero. Or, of MXFP8
//   32 scales      e8m0: scale 4 g + 2 m + h is that of half m, row g + 8 h, for the cell's 32 k
//
// The four codes of a word are pairs, even k in the lower 16 bits: that of row g has sign, exponent
// and mantissa where a bf16 of value e4m3 * 2^-120 has them, at bits 15 and 10 … 4. That of row
// g + 8 fills the bits between: its lower four at bits 3 … 0, to be shifted left by 4 together with
// its sign at 11; the other three at 14 … 12, to be shifted right by 4.
#pragma once

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Bit of a code within its word. high: row g + 8.
FEWBIT_HD constexpr int cuda_f8_bit(int code_bit, int high, int position) {
  const int of_half = high == 0      ? code_bit == 7 ? 15 : code_bit + 4
                      : code_bit < 4 ? code_bit
                      : code_bit < 7 ? code_bit + 8
                                     : 11;
  return of_half + 16 * position;
}

// Dims are those of a half.
template <int scale_bytes>
struct CudaF8CellsWith {
  static constexpr std::int64_t cell_bytes = 1024 + scale_bytes;
  static constexpr std::int64_t block = 128;  // rows and k that share a scale, where they do

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0; }
  FEWBIT_HD static constexpr std::int64_t units(Dims d) { return (d.n + 15) / 16; }
  FEWBIT_HD static constexpr std::int64_t cells(Dims d) { return (d.k + 31) / 32; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return units(d) * cells(d) * cell_bytes; }
};
using CudaF8Cells = CudaF8CellsWith<16>;
using CudaMxF8Cells = CudaF8CellsWith<32>;

// Bit `code_bit` of every code as a layout of its own, dims those of the whole matrix: its first
// n/2 rows are the first half.
template <int code_bit, class Cells = CudaF8Cells>
struct CudaF8CodePlane {
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
    const std::int64_t lane = 4 * (row % 8) + k % 32 / 8;
    const std::int64_t word = 128 * (k % 8 / 4) + 4 * lane + 2 * m + k % 4 / 2;
    const int bit = cuda_f8_bit(code_bit, static_cast<int>(row % 16 / 8), static_cast<int>(k % 2));
    return {.byte = cell * Cells::cell_bytes + 4 * word + bit / 8, .bit = bit % 8};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t within = p.byte % Cells::cell_bytes;
    if (within >= 1024) return {.n = -1, .k = -1};
    const std::int64_t cell = p.byte / Cells::cell_bytes;
    const std::int64_t cells = Cells::cells(half(d));
    const std::int64_t word = within / 4;
    for (int high = 0; high < 2; ++high) {
      for (int position = 0; position < 2; ++position) {
        if (cuda_f8_bit(code_bit, high, position) != within % 4 * 8 + p.bit) continue;
        const std::int64_t lane = word % 128 / 4;
        const std::int64_t row = cell / cells * 16 + high * 8 + lane / 4;
        const std::int64_t k =
            cell % cells * 32 + lane % 4 * 8 + word / 128 * 4 + word % 2 * 2 + position;
        if (row >= half(d).n || k >= d.k) return {.n = -1, .k = -1};
        return {.n = word / 2 % 2 * half(d).n + row, .k = k};
      }
    }
    return {.n = -1, .k = -1};
  }
};

// The scales, dims [units of both halves, cells].
struct CudaF8CellScales {
  static constexpr int bits = 32;

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.n % 2 == 0 && d.k > 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) {
    return d.n / 2 * d.k * CudaF8Cells::cell_bytes;
  }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return 8 * bytes(d) - 32 * d.n * d.k;
  }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t units = d.n / 2;
    return {.byte = (n % units * d.k + k) * CudaF8Cells::cell_bytes + 1024 + n / units * 4,
            .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t within = p.byte % CudaF8Cells::cell_bytes;
    const std::int64_t cell = p.byte / CudaF8Cells::cell_bytes;
    if (within < 1024 || within >= 1032) return {.n = -1, .k = -1};
    return {.n = (within - 1024) / 4 * (d.n / 2) + cell / d.k, .k = cell % d.k};
  }
};

// Those of MXFP8, dims [n, cells] of the whole matrix.
struct CudaMxF8Scales {
  static constexpr int bits = 8;

  FEWBIT_HD static constexpr Dims half(Dims d) { return {.n = d.n / 2, .k = d.k * 32}; }
  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.n % 2 == 0 && d.k > 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return CudaMxF8Cells::bytes(half(d)); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return 8 * bytes(d) - bits * d.n * d.k;
  }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t row = n % half(d).n;
    const std::int64_t cell = row / 16 * d.k + k;
    const std::int64_t index = row % 8 * 4 + n / half(d).n * 2 + row % 16 / 8;
    return {.byte = cell * CudaMxF8Cells::cell_bytes + 1024 + index, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t index = p.byte % CudaMxF8Cells::cell_bytes - 1024;
    const std::int64_t cell = p.byte / CudaMxF8Cells::cell_bytes;
    const std::int64_t row = cell / d.k * 16 + index % 2 * 8 + index / 4;
    if (index < 0 || row >= half(d).n) return {.n = -1, .k = -1};
    return {.n = index / 2 % 2 * half(d).n + row, .k = cell % d.k};
  }
};

}  // namespace fewbit
