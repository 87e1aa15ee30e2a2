// SPDX-License-Identifier: Apache-2.0
// Codes as AWQ stores them: 32-bit words of consecutive n, int32 [k, n * bits / 32]. Even columns
// of a word lie in its low half, odd ones in its high half: nibble i holds column
// (0, 2, 4, 6, 1, 3, 5, 7)[i], byte i column (0, 2, 1, 3)[i].
#pragma once

#include "layout/column_words.hpp"

namespace fewbit {

// Where column c of a word lies, and which column lies there.
FEWBIT_HD constexpr std::int64_t awq_slot(std::int64_t c, std::int64_t per_word) {
  return c % 2 * (per_word / 2) + c / 2;
}
FEWBIT_HD constexpr std::int64_t awq_column(std::int64_t slot, std::int64_t per_word) {
  return slot % (per_word / 2) * 2 + slot / (per_word / 2);
}

struct AwqSlots {
  FEWBIT_HD static constexpr std::int64_t slot(std::int64_t c, std::int64_t per_word) {
    return awq_slot(c, per_word);
  }
  FEWBIT_HD static constexpr std::int64_t column(std::int64_t slot, std::int64_t per_word) {
    return awq_column(slot, per_word);
  }
};

template <int bits>
using AwqWords = ColumnWords<bits, AwqSlots>;

}  // namespace fewbit
