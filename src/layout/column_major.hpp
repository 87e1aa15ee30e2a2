// SPDX-License-Identifier: Apache-2.0
// A transposed matrix [k, n] of whole bytes: FP8 weights for kernels that read columns, scales
// [groups, n] of GPTQ and AWQ.
#pragma once

#include "layout/place.hpp"

namespace fewbit {

template <int element_bits>
struct ColumnMajor {
  static constexpr int bits = element_bits;
  static constexpr std::int64_t element_bytes = element_bits / 8;
  static_assert(element_bits % 8 == 0);

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * d.k * element_bytes; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return {.byte = (k * d.n + n) * element_bytes, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t index = p.byte / element_bytes;
    return {.n = index % d.n, .k = index / d.n};
  }
};

}  // namespace fewbit
