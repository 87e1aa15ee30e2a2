// SPDX-License-Identifier: Apache-2.0
// Words of whole codes, 32 / bits in each from the low bits on: how compressed-tensors before 0.18
// packed. Of 3, 5, 6 and 7 bits that differs from a stream of bits.
#pragma once

#include "core/checked.hpp"

namespace fewbit {

// Words of `count` codes of 1 to 8 bits; `whole`: no code lies in two words.
constexpr std::int64_t words_of_codes(std::int64_t count, int bits, bool whole) {
  if (whole) return ceil_div(count, std::int64_t{32 / bits});
  return count / 32 * bits + ceil_div(count % 32 * bits, std::int64_t{32});
}

// The first bit of code `i`.
constexpr std::int64_t bit_of_code(std::int64_t i, int bits, bool whole) {
  const std::int64_t each = 32 / bits;
  return whole ? i / each * 32 + i % each * bits : i * bits;
}

}  // namespace fewbit
