// SPDX-License-Identifier: Apache-2.0
// int4 weights as the CUDA kernels stream them: like layout/cuda_f4_cells.hpp, with 16-bit scales.
//
// A matrix is two halves of n rows, a unit 16 rows of each half over all k, in cells of 32 k; k is
// filled up to whole quads of four cells. Cells that share scales, all four of a quad or each by
// itself, stand behind a header:
//
//   32 scales of 16 bits  scale 4 g + 2 m + h is that of half m, row g + 8 h of the unit
//   32 zero points        bytes in the same order, where the matrix has any
//   cells                 of 128 words: word 4 (4 g + t) + 2 m + s holds half m, rows g and g + 8,
//                         k 8 t + 4 s … 8 t + 4 s + 3 of the cell
//
// The eight codes of a word are pairs p (row g + 8 (p % 2), k of 2 (p / 2) and the next): pair p at
// bits 4 p of both 16-bit halves, even k in the lower one. So one shift and one masking put two
// codes where the mantissas of two bf16 of 128 end.
//
// Codes are unsigned; without zero points of their own all have 8. Past the matrix codes are 8 and
// scales 0.
#pragma once

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Which cells share scales, and whether they have zero points.
struct CudaInt4Form {
  int scale_cells = 1;  // 1 or 4
  bool zeros = false;
  bool operator==(const CudaInt4Form&) const = default;

  FEWBIT_HD constexpr int header_bytes() const { return zeros ? 96 : 64; }
  FEWBIT_HD constexpr int run_bytes() const { return header_bytes() + 512 * scale_cells; }
  FEWBIT_HD constexpr int quad_bytes() const { return 4 / scale_cells * run_bytes(); }
  FEWBIT_HD constexpr std::int64_t bytes(Dims half) const {
    return units(half) * quads(half) * quad_bytes();
  }
  // From the beginning of a unit: the header of a cell, and its codes.
  FEWBIT_HD constexpr std::int64_t header_at(std::int64_t cell) const {
    return cell / scale_cells * run_bytes();
  }
  FEWBIT_HD constexpr std::int64_t codes_at(std::int64_t cell) const {
    return header_at(cell) + header_bytes() + cell % scale_cells * 512;
  }
  // The cell whose codes hold a byte of a unit; -1: a header.
  FEWBIT_HD constexpr std::int64_t cell_of(std::int64_t byte) const {
    const std::int64_t within = byte % run_bytes() - header_bytes();
    return within < 0 ? -1 : byte / run_bytes() * scale_cells + within / 512;
  }

  FEWBIT_HD static constexpr std::int64_t units(Dims half) { return (half.n + 15) / 16; }
  FEWBIT_HD static constexpr std::int64_t quads(Dims half) { return (half.k + 127) / 128; }
  FEWBIT_HD static constexpr bool accepts(Dims half) { return half.n > 0 && half.k > 0; }
};

// The codes, dims those of the whole matrix: its first n/2 rows are the first half.
template <int scale_cells, bool zeros>
struct CudaInt4Codes {
  static constexpr CudaInt4Form form{.scale_cells = scale_cells, .zeros = zeros};
  static constexpr int bits = 4;

  FEWBIT_HD static constexpr Dims half(Dims d) { return {.n = d.n / 2, .k = d.k}; }
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n % 2 == 0 && CudaInt4Form::accepts(half(d));
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return form.bytes(half(d)); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return 8 * bytes(d) - 4 * d.n * d.k;
  }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t m = n / half(d).n;
    const std::int64_t row = n % half(d).n;
    const std::int64_t unit = row / 16 * CudaInt4Form::quads(half(d)) * form.quad_bytes();
    const std::int64_t word = 4 * (4 * (row % 8) + k % 32 / 8) + 2 * m + k % 8 / 4;
    const std::int64_t nibble = 2 * (k % 4 / 2) + row % 16 / 8 + 4 * (k % 2);
    return {.byte = unit + form.codes_at(k / 32) + 4 * word + nibble / 2,
            .bit = static_cast<int>(nibble % 2 * 4)};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t unit_bytes = CudaInt4Form::quads(half(d)) * form.quad_bytes();
    const std::int64_t within = p.byte % unit_bytes;
    const std::int64_t cell = form.cell_of(within);
    if (cell < 0) return {.n = -1, .k = -1};
    const std::int64_t byte = within - form.codes_at(cell);
    const std::int64_t word = byte / 4;
    const std::int64_t nibble = byte % 4 * 2 + p.bit / 4;
    const std::int64_t row = p.byte / unit_bytes * 16 + nibble % 2 * 8 + word / 16;
    const std::int64_t k =
        cell * 32 + word / 4 % 4 * 8 + word % 2 * 4 + nibble / 2 % 2 * 2 + nibble / 4;
    if (row >= half(d).n || k >= d.k) return {.n = -1, .k = -1};
    return {.n = word / 2 % 2 * half(d).n + row, .k = k};
  }
};

// What stands in the headers for each row and run of cells: 16-bit scales, or bytes of zero points.
// Dims [n, runs of 32 scale_cells k] of the whole matrix.
template <int scale_cells, bool zeros, bool zero_points>
struct CudaInt4Header {
  static_assert(zeros || !zero_points);
  static constexpr CudaInt4Form form{.scale_cells = scale_cells, .zeros = zeros};
  static constexpr int bits = zero_points ? 8 : 16;
  static constexpr std::int64_t first = zero_points ? 64 : 0;

  FEWBIT_HD static constexpr Dims half(Dims d) {
    return {.n = d.n / 2, .k = d.k * 32 * scale_cells};
  }
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n % 2 == 0 && CudaInt4Form::accepts(half(d));
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return form.bytes(half(d)); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return 8 * bytes(d) - bits * d.n * d.k;
  }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t m = n / half(d).n;
    const std::int64_t row = n % half(d).n;
    const std::int64_t unit = row / 16 * CudaInt4Form::quads(half(d)) * form.quad_bytes();
    const std::int64_t index = row % 8 * 4 + m * 2 + row % 16 / 8;
    return {.byte = unit + form.header_at(k * scale_cells) + first + index * bits / 8, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t unit_bytes = CudaInt4Form::quads(half(d)) * form.quad_bytes();
    const std::int64_t within = p.byte % unit_bytes;
    const std::int64_t byte = within % form.run_bytes() - first;
    if (byte < 0 || byte >= 4 * bits) return {.n = -1, .k = -1};
    const std::int64_t index = byte * 8 / bits;
    const std::int64_t row = p.byte / unit_bytes * 16 + index % 2 * 8 + index / 4;
    const std::int64_t run = within / form.run_bytes();
    if (row >= half(d).n || run >= d.k) return {.n = -1, .k = -1};
    return {.n = index / 2 % 2 * half(d).n + row, .k = run};
  }
};

}  // namespace fewbit
