// SPDX-License-Identifier: Apache-2.0
// The plain layout of checkpoints: rows one after another, columns in order, low bits first.
#pragma once

#include "layout/place.hpp"

namespace fewbit {

// element_bits 4: two codes a byte, the even column in the low nibble.
template <int element_bits>
struct RowMajor {
  static constexpr int bits = element_bits;

  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n >= 0 && d.k >= 0 && (d.k * bits) % 8 == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * (d.k * bits / 8); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t bit = (n * d.k + k) * bits;
    return {.byte = bit / 8, .bit = static_cast<int>(bit % 8)};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t index = (p.byte * 8 + p.bit) / bits;
    return {.n = index / d.k, .k = index % d.k};
  }
};

}  // namespace fewbit
