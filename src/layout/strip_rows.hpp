// SPDX-License-Identifier: Apache-2.0
// Some columns n of a matrix with each k apart, a row of bytes: what an order of k is applied to.
// Codes of 4 bits share a byte with those half a block of 512 columns (or half of fewer) away,
// which one exchange of registers brings there.
#pragma once

#include "layout/place.hpp"

namespace fewbit {

template <int element_bits>
struct StripRows {
  static constexpr int bits = element_bits;
  static constexpr std::int64_t per_byte = 8 / bits;
  static constexpr std::int64_t block = 512;

  FEWBIT_HD static constexpr std::int64_t columns(Dims d) { return d.n < block ? d.n : block; }
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.n % columns(d) == 0 && columns(d) % per_byte == 0;
  }
  FEWBIT_HD static constexpr std::int64_t row_bytes(Dims d) { return d.n / per_byte; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.k * row_bytes(d); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t half = columns(d) / per_byte;
    const std::int64_t in_block = n % columns(d);
    return {.byte = k * row_bytes(d) + n / columns(d) * half + in_block % half,
            .bit = static_cast<int>(in_block / half) * bits};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t half = columns(d) / per_byte;
    const std::int64_t in_row = p.byte % row_bytes(d);
    return {.n = in_row / half * columns(d) + p.bit / bits * half + in_row % half,
            .k = p.byte / row_bytes(d)};
  }
};

}  // namespace fewbit
