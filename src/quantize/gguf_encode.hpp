// SPDX-License-Identifier: Apache-2.0
// From f32 to the blocks of GGUF types, round to nearest with one pass over a block.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "checkpoint/gguf_types.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// Encodes whole blocks; the bits are those of ggml's reference encoders as its Python package runs
// them (no fused multiply-add). Scales are used in f32 and stored as f16. Two differences, both of
// values so small that the stored scale is zero or nearly so: a scale whose reciprocal overflows
// counts as zero, and the exponent of an MXFP4 block is exact and at least 0 where the reference
// takes a rounded logarithm.
//
// Types: F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, MXFP4, TQ1_0, TQ2_0, and Q2_0 in both
// extents (also as PQ2_0) and PTQ1_0, which share a rule with TQ2_0: scale = largest magnitude.
// Errors: unsupported (another type), invalid_argument (sizes), corrupt (a NaN or infinite value,
// with its index), limit (a scale beyond f16, with the block's index).
Result<void> encode_gguf_blocks(const GgufType& type, std::span<const float> values,
                                std::span<std::byte> blocks);
// Empty when encode_gguf_blocks can encode the type; otherwise why not.
std::string gguf_encode_refusal(const GgufType& type);

}  // namespace fewbit
