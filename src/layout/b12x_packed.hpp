// SPDX-License-Identifier: Apache-2.0
// Packed 4-bit tiles of the W4A16 kernels (the tiles of 4-bit Marlin without act-order).
//
// A tile is 16 k x 64 n = 128 words of 32 bits; tiles are ordered by k, then n: int32
// [k/16, n/64 * 128]. With
//   x = n%64, j = x/16, h = (x/8)%2, c = x%8,   g = (k%16)/8, r = (k%8)/2, b = k%2
// element (n, k) is nibble 4b + 2h + g of word 16c + 4r + j. So lane 4c + r of a warp reads its
// four words j as one 16-byte vector, and shifting a word by 8 switches between columns n and n+8.
#pragma once

#include "layout/place.hpp"

namespace fewbit {

struct B12xPacked {
  static constexpr int bits = 4;
  static constexpr std::int64_t tile_n = 64;
  static constexpr std::int64_t tile_k = 16;
  static constexpr std::int64_t tile_bytes = tile_n * tile_k / 2;

  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.n % tile_n == 0 && d.k % tile_k == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * (d.k / 2); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t tile = (k / tile_k) * (d.n / tile_n) + n / tile_n;
    const std::int64_t word = 16 * (n % 8) + 4 * ((k % 8) / 2) + (n % 64) / 16;
    const std::int64_t slot = 4 * (k % 2) + 2 * ((n / 8) % 2) + (k % 16) / 8;
    return {.byte = tile * tile_bytes + 4 * word + slot / 2, .bit = static_cast<int>(slot % 2) * 4};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t tile = p.byte / tile_bytes;
    const std::int64_t word = p.byte % tile_bytes / 4;
    const std::int64_t slot = 2 * (p.byte % 4) + p.bit / 4;
    const std::int64_t tiles_n = d.n / tile_n;
    return {.n = tile_n * (tile % tiles_n) + 16 * (word % 4) + 8 * ((slot / 2) % 2) + word / 16,
            .k = tile_k * (tile / tiles_n) + 8 * (slot % 2) + 2 * ((word / 4) % 4) + slot / 4};
  }
};

}  // namespace fewbit
