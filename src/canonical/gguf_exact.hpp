// SPDX-License-Identifier: Apache-2.0
// GGUF blocks as codes and scales apart, for kernels that read them so: where that changes nothing.
#pragma once

#include <optional>

#include "fewbit/quantized.hpp"

namespace fewbit {

// Q4_0: u4 minus 8, f16 scales for 32. Q8_0: i8, the same scales. MXFP4: e2m1, e8m0 for 32. NVFP4:
// e2m1, e4m3 for 16, the factor beside it as the global scale. Q2_0, PQ2_0, TQ2_0: u2 minus 1, f16
// for 64, 128, 256. Empty: other blocks (their offsets, 5 or 6 bits or scales of scales have no
// such form), or no blocks.
std::optional<Scheme> gguf_exact_scheme(const Scheme& scheme);

// The matrix in that scheme; one that has none stays as it is. Code 8 of e2m1, which ggml reads as
// +0, becomes 0. Errors: those of gguf_rows; unsupported (an NVFP4 scale of 480, which e4m3 lacks).
Result<QuantizedTensor> gguf_exact(const QuantizedTensor& blocks);
// Of all matrices of an expert.
Result<ExpertWeights> gguf_exact(ExpertWeights expert);

}  // namespace fewbit
