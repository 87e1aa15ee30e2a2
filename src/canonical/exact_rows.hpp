// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "fewbit/quantized.hpp"

namespace fewbit {

// dequantize_rows() without its roundings to f32: a code times its scale and the matrix's factor,
// with a zero point, has at most 53 bits. Only sums of far apart offsets are rounded, to double.
// GGUF's blocks are defined in f32 and are given so.
Result<void> dequantize_rows_exactly(const QuantizedTensor& tensor, std::int64_t row,
                                     std::span<double> out);

}  // namespace fewbit
