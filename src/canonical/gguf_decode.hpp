// SPDX-License-Identifier: Apache-2.0
// Decoders of one block: reads the type's bytes, writes its elements in the order of the row.
// Fields are little-endian; d is the f16 scale of a block, qs its packed codes.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/float_convert.hpp"

namespace fewbit {

using DecodeGgufBlock = void(const std::uint8_t* block, float* out);

// gguf_decode_simple.cpp: one scale a block, low nibbles first half, high nibbles second half.
DecodeGgufBlock decode_q4_0, decode_q4_1, decode_q5_0, decode_q5_1, decode_q8_0, decode_q8_1,
    decode_iq4_nl, decode_mxfp4, decode_nvfp4;
// gguf_decode_k.cpp: 256 elements with scales of their own for every 16 or 32.
DecodeGgufBlock decode_q2_k, decode_q3_k, decode_q4_k, decode_q5_k, decode_q6_k, decode_q8_k,
    decode_iq4_xs;
// gguf_decode_lattice.cpp: codes point to vectors of 4 or 8 elements.
DecodeGgufBlock decode_iq1_s, decode_iq1_m, decode_iq2_xxs, decode_iq2_xs, decode_iq2_s,
    decode_iq3_xxs, decode_iq3_s;
// gguf_decode_ternary.cpp: one or two bits, or five base-3 digits a byte.
DecodeGgufBlock decode_q1_0_32, decode_q1_0, decode_q2_0_64, decode_q2_0_128, decode_tq1_0,
    decode_tq2_0, decode_ptq1_0;

inline std::uint32_t load_u16(const std::uint8_t* bytes) {
  return static_cast<std::uint32_t>(bytes[0]) | static_cast<std::uint32_t>(bytes[1]) << 8;
}
inline std::uint32_t load_u32(const std::uint8_t* bytes) {
  return load_u16(bytes) | load_u16(bytes + 2) << 16;
}
inline float load_f16(const std::uint8_t* bytes) {
  return f16_to_f32(static_cast<std::uint16_t>(load_u16(bytes)));
}

}  // namespace fewbit
