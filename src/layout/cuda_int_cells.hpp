// SPDX-License-Identifier: Apache-2.0
// int4, int8, ternary and NF3 weights as the CUDA kernels stream them: like
// layout/cuda_f4_cells.hpp, with 16-bit scales.
//
// A matrix is two halves of n rows, a unit 16 rows of each half over all k, in cells of 32 k; k is
// filled up to whole quads of four cells. Cells that share scales, all four of a quad or each by
// itself (of ternary weights also two), stand behind a header:
//
//   32 scales of 16 bits  scale 4 g + 2 m + h is that of half m, row g + 8 h of the unit
//   32 zero points        bytes in the same order, where the matrix has any
//   cells of int4         of 128 words: word 4 (4 g + t) + 2 m + s holds half m, rows g and g + 8,
//                         k 8 t + 4 s … 8 t + 4 s + 3 of the cell
//   cells of int8         of 256 words: word 128 s + 4 (4 g + t) + 2 m + i holds half m, rows g and
//                         g + 8, k 8 t + 4 s + 2 i and the next
//   ternary cells         of 64 words: word 2 (4 g + t) + m holds half m, rows g and g + 8,
//                         k 8 t … 8 t + 7
//   cells of NF3          of 96 words, layout/cuda_nf3_codes.hpp
//
// The eight codes of a word of int4 are pairs p (row g + 8 (p % 2), k of 2 (p / 2) and the next):
// pair p at bits 4 p of both 16-bit halves, even k in the lower one. So one shift and one masking
// put two codes where the mantissas of two bf16 of 128 end. The four codes of a word of int8 are
// two such pairs, at bits 8 p; the sixteen of a ternary word eight, at bits 2 p, those of the first
// four k before the others.
//
// Codes of int4 are unsigned; without zero points of their own all have 8, ternary ones 1. Those of
// int8 are signed, as their zero points are. Past the matrix codes are 8, 1, or 0, and scales 0.
#pragma once

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

// How wide codes are, which cells share scales, and whether they have zero points.
struct CudaIntForm {
  int bits = 4;         // or 8; 2 ternary, 3 NF3
  int scale_cells = 1;  // or 4; of 2 bits also 2
  bool zeros = false;
  bool operator==(const CudaIntForm&) const = default;

  FEWBIT_HD constexpr int cell_bytes() const { return 128 * bits; }
  FEWBIT_HD constexpr int header_bytes() const { return zeros ? 96 : 64; }
  FEWBIT_HD constexpr int run_bytes() const { return header_bytes() + cell_bytes() * scale_cells; }
  FEWBIT_HD constexpr int quad_bytes() const { return 4 / scale_cells * run_bytes(); }
  FEWBIT_HD constexpr std::int64_t bytes(Dims half) const {
    return units(half) * quads(half) * quad_bytes();
  }
  // From the beginning of a unit: the header of a cell, and its codes.
  FEWBIT_HD constexpr std::int64_t header_at(std::int64_t cell) const {
    return cell / scale_cells * run_bytes();
  }
  FEWBIT_HD constexpr std::int64_t codes_at(std::int64_t cell) const {
    return header_at(cell) + header_bytes() + cell % scale_cells * cell_bytes();
  }
  // The cell whose codes hold a byte of a unit; -1: a header.
  FEWBIT_HD constexpr std::int64_t cell_of(std::int64_t byte) const {
    const std::int64_t within = byte % run_bytes() - header_bytes();
    return within < 0 ? -1 : byte / run_bytes() * scale_cells + within / cell_bytes();
  }

  FEWBIT_HD static constexpr std::int64_t units(Dims half) { return (half.n + 15) / 16; }
  FEWBIT_HD static constexpr std::int64_t quads(Dims half) { return (half.k + 127) / 128; }
  FEWBIT_HD static constexpr bool accepts(Dims half) { return half.n > 0 && half.k > 0; }
};

// Where a code of a cell lies in its codes, and which one lies there.
struct CudaIntCode {
  int half = 0;
  int row = 0;  // of the 16
  int k = 0;    // of the 32
};
template <int bits>
FEWBIT_HD constexpr Place cuda_int_place(CudaIntCode code) {
  const int lane = 4 * (code.row % 8) + code.k / 8;
  if (bits == 2) {
    const int bit = 2 * (code.k % 8 / 2 * 2 + code.row / 8) + 16 * (code.k % 2);
    return {.byte = 4 * (2 * lane + code.half) + bit / 8, .bit = bit % 8};
  }
  if (bits == 8) {
    const int word = 128 * (code.k % 8 / 4) + 4 * lane + 2 * code.half + code.k % 4 / 2;
    return {.byte = 4 * word + code.row / 8 + 2 * (code.k % 2), .bit = 0};
  }
  const int word = 4 * lane + 2 * code.half + code.k % 8 / 4;
  const int nibble = 2 * (code.k % 4 / 2) + code.row / 8 + 4 * (code.k % 2);
  return {.byte = 4 * word + nibble / 2, .bit = nibble % 2 * 4};
}
template <int bits>
FEWBIT_HD constexpr CudaIntCode cuda_int_code(Place place) {
  const int byte = static_cast<int>(place.byte);
  const int word = byte / 4;
  if (bits == 2) {
    const int pair = byte % 2 * 4 + place.bit / 2;
    return {.half = word % 2,
            .row = pair % 2 * 8 + word / 8,
            .k = word / 2 % 4 * 8 + pair / 2 * 2 + byte / 2 % 2};
  }
  if (bits == 8) {
    const int lane = word % 128 / 4;
    return {.half = word / 2 % 2,
            .row = byte % 2 * 8 + lane / 4,
            .k = lane % 4 * 8 + word / 128 * 4 + word % 2 * 2 + byte % 4 / 2};
  }
  const int nibble = byte % 4 * 2 + place.bit / 4;
  return {.half = word / 2 % 2,
          .row = nibble % 2 * 8 + word / 16,
          .k = word / 4 % 4 * 8 + word % 2 * 4 + nibble / 2 % 2 * 2 + nibble / 4};
}

// What lies in the cells' codes, dims those of the whole matrix: its first n/2 rows are the first
// half. A Cell says where in a cell (place, and back: code, half -1 where there is none), of how
// many bits and in which form.
template <class Cell>
struct CudaCellCodes {
  static constexpr CudaIntForm form = Cell::form;
  static constexpr int bits = Cell::bits;

  FEWBIT_HD static constexpr Dims half(Dims d) { return {.n = d.n / 2, .k = d.k}; }
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n % 2 == 0 && CudaIntForm::accepts(half(d));
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return form.bytes(half(d)); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return 8 * bytes(d) - bits * d.n * d.k;
  }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t row = n % half(d).n;
    const std::int64_t unit = row / 16 * CudaIntForm::quads(half(d)) * form.quad_bytes();
    Place place = Cell::place({.half = static_cast<int>(n / half(d).n),
                               .row = static_cast<int>(row % 16),
                               .k = static_cast<int>(k % 32)});
    place.byte += unit + form.codes_at(k / 32);
    return place;
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t unit_bytes = CudaIntForm::quads(half(d)) * form.quad_bytes();
    const std::int64_t within = p.byte % unit_bytes;
    const std::int64_t cell = form.cell_of(within);
    if (cell < 0) return {.n = -1, .k = -1};
    const CudaIntCode code = Cell::code({.byte = within - form.codes_at(cell), .bit = p.bit});
    const std::int64_t row = p.byte / unit_bytes * 16 + code.row;
    const std::int64_t k = cell * 32 + code.k;
    if (code.half < 0 || row >= half(d).n || k >= d.k) return {.n = -1, .k = -1};
    return {.n = code.half * half(d).n + row, .k = k};
  }
};

template <int code_bits, int scale_cells, bool zeros>
struct CudaIntCell {
  static constexpr CudaIntForm form{.bits = code_bits, .scale_cells = scale_cells, .zeros = zeros};
  static constexpr int bits = code_bits;
  FEWBIT_HD static constexpr Place place(CudaIntCode code) { return cuda_int_place<bits>(code); }
  FEWBIT_HD static constexpr CudaIntCode code(Place place) { return cuda_int_code<bits>(place); }
};
template <int code_bits, int scale_cells, bool zeros>
using CudaIntCodes = CudaCellCodes<CudaIntCell<code_bits, scale_cells, zeros>>;

// What stands in the headers for each row and run of cells: 16-bit scales, or bytes of zero points.
// Dims [n, runs of 32 scale_cells k] of the whole matrix.
template <int code_bits, int scale_cells, bool zeros, bool zero_points>
struct CudaIntHeader {
  static_assert(zeros || !zero_points);
  static constexpr CudaIntForm form{.bits = code_bits, .scale_cells = scale_cells, .zeros = zeros};
  static constexpr int bits = zero_points ? 8 : 16;
  static constexpr std::int64_t first = zero_points ? 64 : 0;

  FEWBIT_HD static constexpr Dims half(Dims d) {
    return {.n = d.n / 2, .k = d.k * 32 * scale_cells};
  }
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n % 2 == 0 && CudaIntForm::accepts(half(d));
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return form.bytes(half(d)); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return 8 * bytes(d) - bits * d.n * d.k;
  }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t m = n / half(d).n;
    const std::int64_t row = n % half(d).n;
    const std::int64_t unit = row / 16 * CudaIntForm::quads(half(d)) * form.quad_bytes();
    const std::int64_t index = row % 8 * 4 + m * 2 + row % 16 / 8;
    return {.byte = unit + form.header_at(k * scale_cells) + first + index * bits / 8, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t unit_bytes = CudaIntForm::quads(half(d)) * form.quad_bytes();
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
