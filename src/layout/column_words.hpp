// SPDX-License-Identifier: Apache-2.0
// Codes in 32-bit words of consecutive n, lowest bits first: int32 [k, n * bits / 32]. Zero points
// of GPTQ and compressed-tensors (k: their groups).
#pragma once

#include "layout/place.hpp"

namespace fewbit {

// Column c of a word lies in its slot c.
struct PlainSlots {
  FEWBIT_HD static constexpr std::int64_t slot(std::int64_t c, std::int64_t /*per_word*/) {
    return c;
  }
  FEWBIT_HD static constexpr std::int64_t column(std::int64_t slot, std::int64_t /*per_word*/) {
    return slot;
  }
};

template <int code_bits, class Slots = PlainSlots>
struct ColumnWords {
  static constexpr int bits = code_bits;
  static constexpr std::int64_t per_word = 32 / bits;

  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.n % per_word == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.k * (d.n / per_word) * 4; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t bit = Slots::slot(n % per_word, per_word) * bits;
    return {.byte = (k * (d.n / per_word) + n / per_word) * 4 + bit / 8,
            .bit = static_cast<int>(bit % 8)};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t word = p.byte / 4;
    const std::int64_t words = d.n / per_word;
    const std::int64_t slot = (p.byte % 4 * 8 + p.bit) / bits;
    return {.n = word % words * per_word + Slots::column(slot, per_word), .k = word / words};
  }
};

}  // namespace fewbit
