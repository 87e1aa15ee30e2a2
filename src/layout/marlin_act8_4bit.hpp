// SPDX-License-Identifier: Apache-2.0
// Marlin tiles of 4-bit codes for 8-bit activations.
//
// A tile is 32 k x 32 n = 128 words; tiles are ordered by k, then n. Element (n, k) is nibble
// 2 * (k%4) + (k%32)/16 of word 16 * (n%8) + 4 * ((k%16)/4) + (n%32)/8.
#pragma once

#include "layout/place.hpp"

namespace fewbit {

struct MarlinAct8Of4Bit {
  static constexpr int bits = 4;
  static constexpr std::int64_t tile_n = 32;
  static constexpr std::int64_t tile_k = 32;
  static constexpr std::int64_t tile_bytes = tile_n * tile_k / 2;

  // vLLM checks k % 16 and n % 64; half a tile of k would be dropped.
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.n % 64 == 0 && d.k % tile_k == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * (d.k / 2); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t tile = k / tile_k * (d.n / tile_n) + n / tile_n;
    const std::int64_t word = 16 * (n % 8) + 4 * (k % 16 / 4) + n % 32 / 8;
    const std::int64_t slot = 2 * (k % 4) + k % 32 / 16;
    return {.byte = tile * tile_bytes + 4 * word + slot / 2, .bit = static_cast<int>(slot % 2) * 4};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t tile = p.byte / tile_bytes;
    const std::int64_t word = p.byte % tile_bytes / 4;
    const std::int64_t slot = 2 * (p.byte % 4) + p.bit / 4;
    const std::int64_t tiles_n = d.n / tile_n;
    return {.n = tile_n * (tile % tiles_n) + 8 * (word % 4) + word / 16,
            .k = tile_k * (tile / tiles_n) + 16 * (slot % 2) + 4 * (word / 4 % 4) + slot / 2};
  }
};

}  // namespace fewbit
