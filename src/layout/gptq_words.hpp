// SPDX-License-Identifier: Apache-2.0
// Codes as GPTQ stores them: 32-bit words of consecutive k, int32 [k * bits / 32, n].
#pragma once

#include "layout/place.hpp"

namespace fewbit {

template <int code_bits>
struct GptqWords {
  static constexpr int bits = code_bits;
  static constexpr std::int64_t per_word = 32 / bits;

  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.k % per_word == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * (d.k / per_word) * 4; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t bit = k % per_word * bits;
    return {.byte = (k / per_word * d.n + n) * 4 + bit / 8, .bit = static_cast<int>(bit % 8)};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t word = p.byte / 4;
    return {.n = word % d.n, .k = word / d.n * per_word + (p.byte % 4 * 8 + p.bit) / bits};
  }
};

}  // namespace fewbit
