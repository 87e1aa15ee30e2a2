// SPDX-License-Identifier: Apache-2.0
// Marlin tiles of 8-bit codes for 16-bit activations.
//
// A tile is 16 k x 64 n = 256 words; tiles are ordered by k, then n. With
//   x = n%64, j = x/16, h = (x/8)%2, c = x%8,   g = (k%16)/8, r = (k%8)/2, b = k%2
// element (n, k) is byte 2b + g of word 8 * (4c + r) + 2j + h.
#pragma once

#include "layout/place.hpp"

namespace fewbit {

struct Marlin8Bit {
  static constexpr int bits = 8;
  static constexpr std::int64_t tile_n = 64;
  static constexpr std::int64_t tile_k = 16;
  static constexpr std::int64_t tile_bytes = tile_n * tile_k;

  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.n % tile_n == 0 && d.k % tile_k == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * d.k; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t tile = k / tile_k * (d.n / tile_n) + n / tile_n;
    const std::int64_t lane = 4 * (n % 8) + k % 8 / 2;
    const std::int64_t word = 8 * lane + 2 * (n % 64 / 16) + n / 8 % 2;
    return {.byte = tile * tile_bytes + 4 * word + 2 * (k % 2) + k % 16 / 8, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t tile = p.byte / tile_bytes;
    const std::int64_t word = p.byte % tile_bytes / 4;
    const std::int64_t in_word = p.byte % 4;
    const std::int64_t lane = word / 8;
    const std::int64_t tiles_n = d.n / tile_n;
    return {.n = tile_n * (tile % tiles_n) + 16 * (word % 8 / 2) + 8 * (word % 2) + lane / 4,
            .k = tile_k * (tile / tiles_n) + 8 * (in_word % 2) + 2 * (lane % 4) + in_word / 2};
  }
};

}  // namespace fewbit
