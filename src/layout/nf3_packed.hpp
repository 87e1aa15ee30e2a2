// SPDX-License-Identifier: Apache-2.0
// 3-bit NF3 codes as the W4A16 kernels of b12x read them ("nf3_2p1"): low two bits and high bit in
// separate words.
//
// 32 codes (8 columns, 8 apart, x 4 k of one lane) are a unit of three words lo0, lo1, hi. With
//   x = n%64, j = x/16, h = (x/8)%2, c = x%8,   g = (k%16)/8, r = (k%8)/2, b = k%2
//   v = 4h + 2g + b,  u = 32 * (n/64) + 4c + r,  q = tile_n/2
// a code lies in unit ((u/q) * (k_total/16) + k/16) * q + u%q: its low two bits at bit
// 16 * (j%2) + 2v of word lo(j/2), its high bit at bit 8j + v of word hi. So the stage of a thread
// block (tile_n columns, some k) is one contiguous span, and the packing is for one tile_n.
#pragma once

#include "layout/place.hpp"

namespace fewbit {

struct Nf3Packed {
  static constexpr std::int64_t unit_bytes = 12;

  // tile_n: columns of a thread block. Other multiples of 16 that the engine accepts split units.
  FEWBIT_HD static constexpr bool accepts(Dims d, std::int64_t tile_n) {
    return d.n > 0 && d.k > 0 && d.k % 32 == 0 && tile_n > 0 && tile_n % 64 == 0 &&
           d.n % tile_n == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * d.k / 32 * unit_bytes; }

  FEWBIT_HD static constexpr std::int64_t unit(Dims d, std::int64_t tile_n, std::int64_t n,
                                               std::int64_t k) {
    const std::int64_t q = tile_n / 2;
    const std::int64_t u = 32 * (n / 64) + 4 * (n % 8) + (k % 8) / 2;
    return (u / q * (d.k / 16) + k / 16) * q + u % q;
  }
  FEWBIT_HD static constexpr std::int64_t value_in_unit(std::int64_t n, std::int64_t k) {
    return 4 * ((n / 8) % 2) + 2 * ((k % 16) / 8) + k % 2;
  }

  FEWBIT_HD static constexpr Place low_place(Dims d, std::int64_t tile_n, std::int64_t n,
                                             std::int64_t k) {
    const std::int64_t bit = 16 * ((n % 64) / 16) + 2 * value_in_unit(n, k);
    return {.byte = unit(d, tile_n, n, k) * unit_bytes + bit / 8, .bit = static_cast<int>(bit % 8)};
  }
  FEWBIT_HD static constexpr Place high_place(Dims d, std::int64_t tile_n, std::int64_t n,
                                              std::int64_t k) {
    return {.byte = unit(d, tile_n, n, k) * unit_bytes + 8 + (n % 64) / 16,
            .bit = static_cast<int>(value_in_unit(n, k))};
  }
  FEWBIT_HD static constexpr Element element(Dims d, std::int64_t tile_n, std::int64_t unit,
                                             std::int64_t j, std::int64_t v) {
    const std::int64_t q = tile_n / 2;
    const std::int64_t u = unit / (d.k / 16 * q) * q + unit % q;
    return {.n = 64 * (u / 32) + 16 * j + 8 * (v / 4) + u % 32 / 4,
            .k = 16 * (unit / q % (d.k / 16)) + 8 * (v / 2 % 2) + 2 * (u % 4) + v % 2};
  }
};

// The two planes as layouts: each covers its bits of the buffer, the other's are spare.
template <std::int64_t tile_n>
struct Nf3LowPlane {
  static constexpr int bits = 2;
  FEWBIT_HD static constexpr bool accepts(Dims d) { return Nf3Packed::accepts(d, tile_n); }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return Nf3Packed::bytes(d); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) { return d.n * d.k; }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return Nf3Packed::low_place(d, tile_n, n, k);
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t bit = p.byte % Nf3Packed::unit_bytes * 8 + p.bit;
    if (bit >= 64) return {.n = -1, .k = -1};
    return Nf3Packed::element(d, tile_n, p.byte / Nf3Packed::unit_bytes, bit / 16, bit % 16 / 2);
  }
};

template <std::int64_t tile_n>
struct Nf3HighPlane {
  static constexpr int bits = 1;
  FEWBIT_HD static constexpr bool accepts(Dims d) { return Nf3Packed::accepts(d, tile_n); }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return Nf3Packed::bytes(d); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) { return 2 * d.n * d.k; }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return Nf3Packed::high_place(d, tile_n, n, k);
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t byte = p.byte % Nf3Packed::unit_bytes;
    if (byte < 8) return {.n = -1, .k = -1};
    return Nf3Packed::element(d, tile_n, p.byte / Nf3Packed::unit_bytes, byte - 8, p.bit);
  }
};

}  // namespace fewbit
