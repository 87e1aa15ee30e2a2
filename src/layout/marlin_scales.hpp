// SPDX-License-Identifier: Apache-2.0
// 16-bit scales of Marlin [groups, n] with the columns in one of the scale orders. A bias is one
// row in the single order. 8 bits: e8m0 scales for FP8 activations, which read single bytes; for
// 16-bit activations they are a ByteScaleGrid.
#pragma once

#include "layout/place.hpp"
#include "layout/scale_grid.hpp"

namespace fewbit {

// dims.k = groups.
template <ScaleOrder order, int element_bits = 16>
struct MarlinScales {
  static constexpr int bits = element_bits;
  static constexpr std::int64_t block = order == ScaleOrder::grouped ? 64 : 32;

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0 && d.n % block == 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * d.k * (bits / 8); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return {.byte = (k * d.n + scale_column(order, n)) * (bits / 8), .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t index = p.byte / (bits / 8);
    return {.n = scale_source(order, index % d.n), .k = index / d.n};
  }
};

}  // namespace fewbit
