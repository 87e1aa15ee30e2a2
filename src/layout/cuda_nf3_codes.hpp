// SPDX-License-Identifier: Apache-2.0
// Codes of NF3 in a cell of layout/cuda_int_cells.hpp: 32 rows x 32 k in 96 words.
//
// NF3's values are four magnitudes of either sign, and its codes their order: 3 to 0 and 4 to 7 are
// the magnitudes 0 to 3, the former below zero. They are stored so, in two places:
//
//   64 words of magnitudes  word 2 (4 g + t) + m holds half m, rows g and g + 8, k 8 t … 8 t + 7 of
//                           the cell: of k 8 t + 4 s + 2 i + e and row g + 8 h at bits 2 (2 i + h)
//                           of byte 2 s + e
//   32 words of signs       word 4 g + t holds both halves: the same at bit 8 m + 4 s + 2 i + h of
//                           the lower (e = 0) or upper 16
//
// So one shift and one masking give the magnitudes of four codes a byte each, and one shift the
// signs of a pair where two bf16 have them.
#pragma once

#include "layout/cuda_int_cells.hpp"

namespace fewbit {

// Bits 0 and 1 the magnitude, 2 the sign; and back.
FEWBIT_HD constexpr std::uint8_t cuda_nf3_stored(std::uint8_t code) {
  return static_cast<std::uint8_t>(code < 4 ? 7 - code : code - 4);
}
FEWBIT_HD constexpr std::uint8_t cuda_nf3_code(std::uint8_t stored) {
  return static_cast<std::uint8_t>(stored < 4 ? stored + 4 : 7 - stored);
}

// Where a bit (0 and 1 magnitude, 2 sign) of a code of a cell lies in its codes.
FEWBIT_HD constexpr Place cuda_nf3_place(CudaIntCode code, int bit) {
  const int lane = 4 * (code.row % 8) + code.k / 8;
  const int pair = code.k % 4 / 2 * 2 + code.row / 8;
  const int s = code.k % 8 / 4;
  if (bit < 2) {
    return {.byte = 4 * (2 * lane + code.half) + 2 * s + code.k % 2, .bit = 2 * pair + bit};
  }
  return {.byte = 256 + 4 * lane + 2 * (code.k % 2) + code.half, .bit = 4 * s + pair};
}
// The code whose bit lies there; half -1: another bit.
FEWBIT_HD constexpr CudaIntCode cuda_nf3_at(Place place, int bit) {
  const int byte = static_cast<int>(place.byte);
  if ((byte < 256) != (bit < 2)) return {.half = -1};
  if (bit == 2) {
    const int lane = (byte - 256) / 4;
    return {.half = byte % 2,
            .row = place.bit % 2 * 8 + lane / 4,
            .k = lane % 4 * 8 + place.bit / 4 * 4 + place.bit / 2 % 2 * 2 + byte / 2 % 2};
  }
  if (place.bit % 2 != bit) return {.half = -1};
  const int lane = byte / 8;
  const int pair = place.bit / 2;
  return {.half = byte / 4 % 2,
          .row = pair % 2 * 8 + lane / 4,
          .k = lane % 4 * 8 + byte / 2 % 2 * 4 + pair / 2 * 2 + byte % 2};
}

// A bit of the codes as they are stored. Scales as those of CudaIntHeader<3, 1, false, false>.
template <int bit>
struct CudaNf3Cell {
  static constexpr CudaIntForm form{.bits = 3, .scale_cells = 1, .zeros = false};
  static constexpr int bits = 1;
  FEWBIT_HD static constexpr Place place(CudaIntCode code) { return cuda_nf3_place(code, bit); }
  FEWBIT_HD static constexpr CudaIntCode code(Place place) { return cuda_nf3_at(place, bit); }
};
template <int bit>
using CudaNf3Plane = CudaCellCodes<CudaNf3Cell<bit>>;

}  // namespace fewbit
