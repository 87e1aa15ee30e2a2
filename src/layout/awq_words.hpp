// SPDX-License-Identifier: Apache-2.0
// Codes as AWQ stores them: 32-bit words of consecutive n, int32 [k, n * bits / 32]. Even columns
// of a word lie in its low half, odd ones in its high half: nibble i holds column
// (0, 2, 4, 6, 1, 3, 5, 7)[i], byte i column (0, 2, 1, 3)[i].
#pragma once

#include "layout/place.hpp"

namespace fewbit {

// Where column c of a word lies, and which column lies there.
FEWBIT_HD constexpr std::int64_t awq_slot(std::int64_t c, std::int64_t per_word) {
  return c % 2 * (per_word / 2) + c / 2;
}
FEWBIT_HD constexpr std::int64_t awq_column(std::int64_t slot, std::int64_t per_word) {
  return slot % (per_word / 2) * 2 + slot / (per_word / 2);
}

template <int code_bits>
struct AwqWords {
  static constexpr int bits = code_bits;
  static constexpr std::int64_t per_word = 32 / bits;

  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return d.n > 0 && d.k > 0 && d.n % per_word == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.k * (d.n / per_word) * 4; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t bit = awq_slot(n % per_word, per_word) * bits;
    return {.byte = (k * (d.n / per_word) + n / per_word) * 4 + bit / 8,
            .bit = static_cast<int>(bit % 8)};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t word = p.byte / 4;
    const std::int64_t words = d.n / per_word;
    const std::int64_t slot = (p.byte % 4 * 8 + p.bit) / bits;
    return {.n = word % words * per_word + awq_column(slot, per_word), .k = word / words};
  }
};

}  // namespace fewbit
