// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "checkpoint/gguf_types.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {

struct GgufRows {
  const GgufType* type = nullptr;
  std::uint64_t bytes = 0;  // of one row
};
// The blocks of a matrix with scheme.ggml_type. Errors: unsupported (unknown type),
// invalid_argument (k that is no whole blocks, size of the codes).
Result<GgufRows> gguf_rows(const QuantizedTensor& tensor);

// As dequantize_rows, whose checks of the range were made. The decoded value is rounded to f32, and
// so is its product with global_scale.
Result<void> dequantize_gguf_rows(const QuantizedTensor& tensor, std::int64_t row,
                                  std::span<float> out);

}  // namespace fewbit
