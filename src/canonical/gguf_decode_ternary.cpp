// SPDX-License-Identifier: Apache-2.0
// Types of one scale and codes -1, 0, +1: single bits, bit pairs (where the fourth code is +2), and
// base-3 digits.
//
// A byte of digits holds the number 0.t0 t1 t2 … in base 3 as ceil(256/243 * integer), so that
// digit n is the whole part of 3 * ((byte * 3^n) mod 256) / 256.
#include "canonical/gguf_decode.hpp"

namespace fewbit {
namespace {

float ternary(int code, float d) { return static_cast<float>(code - 1) * d; }

int base3_digit(std::uint8_t byte, int n) {
  constexpr int powers[] = {1, 3, 9, 27, 81};
  return (byte * powers[n] & 0xFF) * 3 >> 8;
}

// `bytes` bytes with `digits` digits each, digit-major: all first digits, then all second ones.
// Returns the end of what was written.
float* decode_digits(const std::uint8_t* source, int bytes, int digits, float d, float* out) {
  for (int n = 0; n < digits; ++n) {
    for (int m = 0; m < bytes; ++m) *out++ = ternary(base3_digit(source[m], n), d);
  }
  return out;
}

// d; qs: bit i%8 of byte i/8, clear is -d and set is +d
void decode_signs(const std::uint8_t* block, int elements, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < elements; ++i) out[i] = (block[2 + i / 8] >> i % 8 & 1) != 0 ? d : -d;
}

// d; qs: bits 2*(i%4) of byte i/4
void decode_pairs(const std::uint8_t* block, int elements, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < elements; ++i) out[i] = ternary(block[2 + i / 4] >> 2 * (i % 4) & 3, d);
}

}  // namespace

void decode_q1_0_32(const std::uint8_t* block, float* out) { decode_signs(block, 32, out); }
void decode_q1_0(const std::uint8_t* block, float* out) { decode_signs(block, 128, out); }
void decode_q2_0_64(const std::uint8_t* block, float* out) { decode_pairs(block, 64, out); }
void decode_q2_0_128(const std::uint8_t* block, float* out) { decode_pairs(block, 128, out); }

// qs[48]: 32 bytes, then 16; qh[4] of four digits; d
void decode_tq1_0(const std::uint8_t* block, float* out) {
  const float d = load_f16(block + 52);
  out = decode_digits(block, 32, 5, d, out);
  out = decode_digits(block + 32, 16, 5, d, out);
  decode_digits(block + 48, 4, 4, d, out);
}

// qs[24]: 16 bytes, then 8; qh[2] of four digits; d
void decode_ptq1_0(const std::uint8_t* block, float* out) {
  const float d = load_f16(block + 26);
  out = decode_digits(block, 16, 5, d, out);
  out = decode_digits(block + 16, 8, 5, d, out);
  decode_digits(block + 24, 2, 4, d, out);
}

// qs[64] as two runs of 32 bytes, pair-major within a run; d
void decode_tq2_0(const std::uint8_t* block, float* out) {
  const float d = load_f16(block + 64);
  for (int i = 0; i < 256; ++i) {
    const int shift = 2 * (i % 128 / 32);
    out[i] = ternary(block[i / 128 * 32 + i % 32] >> shift & 3, d);
  }
}

}  // namespace fewbit
