// SPDX-License-Identifier: Apache-2.0
// What the stored zero points of a GPTQ-like module say about their convention.
#pragma once

#include <cstdint>

#include "fewbit/tensor.hpp"

namespace fewbit {

struct ZeroFields {
  std::int64_t count = 0;
  std::int64_t middle = 0;    // 2^(bits-1): symmetric, stored as they are
  std::int64_t below = 0;     // 2^(bits-1) - 1: symmetric, stored one too small
  std::int64_t zero = 0;      // 0
  std::int64_t all_ones = 0;  // 2^bits - 1: a stored -1 when zeros are one too small
  std::uint32_t first_word = 0;

  bool symmetric_as_is() const { return count > 0 && middle == count; }
  bool symmetric_minus() const { return count > 0 && below == count; }
};
// qzeros i32 [groups, ceil(n * bits / 32)], n fields a row from the low bits on; other shapes give
// no fields.
ZeroFields count_zero_fields(const TensorView& qzeros, std::int64_t n, int bits);

}  // namespace fewbit
