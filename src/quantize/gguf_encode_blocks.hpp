// SPDX-License-Identifier: Apache-2.0
// Encoders of one block of finite values.
#pragma once

#include <cstdint>

#include "core/float_convert.hpp"

namespace fewbit {

// Returns the number of largest magnitude that was rounded to f16 in the block (0: none was).
using EncodeGgufBlock = float(const float* values, std::uint8_t* block);

// gguf_encode_simple.cpp
EncodeGgufBlock encode_q4_0, encode_q4_1, encode_q5_0, encode_q5_1, encode_q8_0, encode_mxfp4;
// gguf_encode_ternary.cpp
EncodeGgufBlock encode_q2_0_64, encode_q2_0_128, encode_tq1_0, encode_tq2_0, encode_ptq1_0;

inline void store_f16(std::uint8_t* bytes, float value) {
  const std::uint16_t code = f32_to_f16(value);
  bytes[0] = static_cast<std::uint8_t>(code & 0xFF);
  bytes[1] = static_cast<std::uint8_t>(code >> 8);
}

// 1/d; 0 when d is zero or so small that the reciprocal is no number.
float safe_reciprocal(float d);
// Largest |value|.
float largest_magnitude(const float* values, int count);

}  // namespace fewbit
