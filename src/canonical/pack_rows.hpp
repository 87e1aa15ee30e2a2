// SPDX-License-Identifier: Apache-2.0
// Codes of other packings, as the canonical form has them: row by row, low bits first.
#pragma once

#include "fewbit/tensor.hpp"

namespace fewbit {

// u8 [n/2, k], two rows a byte, the upper row in the low nibble, to u8 [n, ceil(k/2)]. n is even.
// Errors: limit.
Result<Tensor> unpack_row_pairs(const Tensor& codes, std::int64_t n, std::int64_t k);

// u8 [n/4, k], four rows a byte, row q * n/4 + r at bits 2q and 2q + 1 of row r, to u8
// [n, ceil(k/4)]. n is a multiple of 4. Errors: limit.
Result<Tensor> unpack_row_quarters(const Tensor& codes, std::int64_t n, std::int64_t k);

// The same bytes with their halves swapped: codes that are stored high nibble first. Errors: limit.
Result<Tensor> swap_nibbles(const Tensor& codes);

}  // namespace fewbit
