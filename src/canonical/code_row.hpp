// SPDX-License-Identifier: Apache-2.0
// The codes of one row as numbers, before scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fewbit/tensor.hpp"

namespace fewbit {

// Whether decode_codes knows the type.
bool has_code_values(DType dtype);
// Bytes of a row of k codes: a dense bit stream in whole bytes. k >= 0, below 2^59.
std::uint64_t code_row_bytes(DType dtype, std::int64_t k);
// out[j] = value of code j. bytes holds code_row_bytes(dtype, out.size()).
// Integers of up to 8 bits, e2m1, nf3, nf4, f6, f8 and 16/32-bit floats.
void decode_codes(DType dtype, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace fewbit
