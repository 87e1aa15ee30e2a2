// SPDX-License-Identifier: Apache-2.0
// Fast packing of 4-bit codes into B12xPacked tiles, one panel of 64 rows at a time.
//
// For one c = n%8 a tile takes 8 rows (n = 16j + 8h + c) with 8 bytes each and gives the 64
// consecutive bytes of words 16c .. 16c+15. A row's 8 bytes are P (k 0..7) and Q (k 8..15), r-th
// byte of each:
//   word[4r + j] = bytes { P.lo | Q.lo << 4 of h=0, the same of h=1, P.hi | Q.hi << 4 of h=0, of
//   h=1 }
// All variants give the same bytes as pack<B12xPacked>.
#pragma once

#include <cstdint>

#include "fewbit/selection.hpp"

namespace fewbit {

struct B12xPanel {
  // Of each of the 64 rows: k/2 bytes, two codes a byte, the even k in the low nibble. Any
  // alignment; exactly k/2 bytes are read.
  const std::uint8_t* rows[64];
  std::int64_t k;             // multiple of 16
  std::uint8_t* tiles;        // tile of k = 0; 512 bytes a tile
  std::int64_t stride_bytes;  // from one tile to the tile of the next 16 k
};

using PackB12xPanelFn = void(const B12xPanel& panel);
PackB12xPanelFn pack_b12x_panel_generic;
PackB12xPanelFn pack_b12x_panel_avx2;    // needs AVX2
PackB12xPanelFn pack_b12x_panel_avx512;  // needs AVX-512 F, BW, VL

// The variant of an ISA level of this machine.
PackB12xPanelFn* pack_b12x_panel(IsaLevel level);

}  // namespace fewbit
