// SPDX-License-Identifier: Apache-2.0
// Codes of other packings, as the canonical form has them: row by row, low bits first.
#pragma once

#include "fewbit/tensor.hpp"

namespace fewbit {

// u8 [n/2, k], two rows a byte, the upper row in the low nibble, to u8 [n, ceil(k/2)]. n is even.
// Errors: limit.
Result<Tensor> unpack_row_pairs(const Tensor& codes, std::int64_t n, std::int64_t k);

}  // namespace fewbit
