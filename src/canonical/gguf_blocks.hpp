// SPDX-License-Identifier: Apache-2.0
// What the blocks of every decodable GGUF type mean.
#pragma once

#include <cstddef>
#include <span>

#include "checkpoint/gguf_types.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// Decodes whole blocks to f32: bits as ggml's reference decoder gives them (scale times integer
// code, each product and sum rounded to f32), except that an MXFP4 scale byte of 255 gives NaN, as
// the OCP MX specification says, and code 0 too. I8 to I64 and F64 are rounded once to nearest
// even. Bytes may be unaligned.
//
// Errors: unsupported (removed types), invalid_argument (sizes that are no whole blocks or don't
// match: the numbers).
Result<void> decode_gguf_blocks(const GgufType& type, std::span<const std::byte> blocks,
                                std::span<float> out);
// Empty when decode_gguf_blocks can decode the type; otherwise why not.
std::string gguf_decode_refusal(const GgufType& type);

}  // namespace fewbit
