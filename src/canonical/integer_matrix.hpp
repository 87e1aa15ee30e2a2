// SPDX-License-Identifier: Apache-2.0
// GPTQ- and AWQ-like tensors as a canonical matrix.
#pragma once

#include <string>

#include "fewbit/quantized.hpp"

namespace fewbit {

// As stored; absent parts are empty.
struct IntegerParts {
  Tensor qweight;
  Tensor qzeros;
  Tensor scales;
  Tensor g_idx;
  std::string name;  // of the module, for messages
};

// scheme: as identify() gives it; its packing says what the parts are. Codes become dense rows [n,
// k]; zero points u8 [n, groups], for words_k_minus one more than stored modulo 2^bits; scales [n,
// groups] in their own type. g_idx that is in order is dropped; negative entries count from the
// last group. GEMV-fast: the stored -scale * zero become offsets.
// Errors: corrupt names the tensor with its type or shape and the expected one; not_found.
Result<QuantizedTensor> make_integer_matrix(const Scheme& scheme, std::int64_t n, std::int64_t k,
                                            const IntegerParts& parts);

}  // namespace fewbit
