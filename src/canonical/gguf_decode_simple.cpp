// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "canonical/gguf_decode.hpp"

namespace fewbit {
namespace {

// Twice the e2m1 values. ggml's tables hold integers, so code 8 is +0 here, not -0.
constexpr std::array<float, 16> doubled_e2m1 = [] {
  std::array<float, 16> values{};
  for (std::uint8_t code = 0; code < 16; ++code) {
    values[code] = code == 8 ? 0.0F : 2.0F * f4_e2m1_to_f32(code);
  }
  return values;
}();

std::uint32_t low(std::uint8_t pair) { return pair & 0xFU; }
std::uint32_t high(std::uint8_t pair) { return static_cast<std::uint32_t>(pair) >> 4; }

// Half of 2^(e-127), so that its product with a doubled value is rounded once; 255 is NaN.
float half_e8m0(std::uint8_t e) { return e == 255 ? f8_e8m0_to_f32(e) : 0.5F * f8_e8m0_to_f32(e); }

// Half of the scale of 16 e2m1 values. Only the byte 0x7f reads as zero: with the ignored top bit
// set, the same magnitude is 480.
float half_ue4m3(std::uint8_t code) {
  return 0.5F * (code == 0xFF ? 480.0F : f8_ue4m3_to_f32(code));
}

// The codes of 32 elements with five bits; the fifth of element j is bit j of the word `qh`.
void five_bit_codes(const std::uint8_t* qh, const std::uint8_t* qs, float offset, float* codes) {
  const std::uint32_t fifth = load_u32(qh);
  for (int j = 0; j < 16; ++j) {
    codes[j] = static_cast<float>(low(qs[j]) | (fifth >> j & 1U) << 4) - offset;
    codes[j + 16] = static_cast<float>(high(qs[j]) | (fifth >> (j + 16) & 1U) << 4) - offset;
  }
}

}  // namespace

// d; qs[16]
void decode_q4_0(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int j = 0; j < 16; ++j) {
    out[j] = (static_cast<float>(low(block[2 + j])) - 8.0F) * d;
    out[j + 16] = (static_cast<float>(high(block[2 + j])) - 8.0F) * d;
  }
}

// d; m; qs[16]
void decode_q4_1(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(low(block[4 + j])) * d + m;
    out[j + 16] = static_cast<float>(high(block[4 + j])) * d + m;
  }
}

// d; qh[4]; qs[16]
void decode_q5_0(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  five_bit_codes(block + 2, block + 6, 16.0F, out);
  for (int j = 0; j < 32; ++j) out[j] *= d;
}

// d; m; qh[4]; qs[16]
void decode_q5_1(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  five_bit_codes(block + 4, block + 8, 0.0F, out);
  for (int j = 0; j < 32; ++j) out[j] = out[j] * d + m;
}

// d; i8 qs[32]
void decode_q8_0(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int j = 0; j < 32; ++j) {
    out[j] = static_cast<float>(static_cast<std::int8_t>(block[2 + j])) * d;
  }
}

// d; s (a sum for dot products, not needed here); i8 qs[32]
void decode_q8_1(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int j = 0; j < 32; ++j) {
    out[j] = static_cast<float>(static_cast<std::int8_t>(block[4 + j])) * d;
  }
}

// d; qs[16]
void decode_iq4_nl(const std::uint8_t* block, float* out) {
  const float d = load_f16(block);
  for (int j = 0; j < 16; ++j) {
    out[j] = d * static_cast<float>(iq4_nl_to_i8(block[2 + j] & 0xFU));
    out[j + 16] = d * static_cast<float>(iq4_nl_to_i8(block[2 + j] >> 4));
  }
}

// e (E8M0); qs[16]
void decode_mxfp4(const std::uint8_t* block, float* out) {
  const float scale = half_e8m0(block[0]);
  for (int j = 0; j < 16; ++j) {
    out[j] = doubled_e2m1[low(block[1 + j])] * scale;
    out[j + 16] = doubled_e2m1[high(block[1 + j])] * scale;
  }
}

// d[4] (UE4M3); qs[32]: 8 bytes for each 16 elements
void decode_nvfp4(const std::uint8_t* block, float* out) {
  for (int s = 0; s < 4; ++s) {
    const float scale = half_ue4m3(block[s]);
    const std::uint8_t* qs = block + 4 + 8 * s;
    for (int j = 0; j < 8; ++j) {
      out[16 * s + j] = doubled_e2m1[low(qs[j])] * scale;
      out[16 * s + 8 + j] = doubled_e2m1[high(qs[j])] * scale;
    }
  }
}

}  // namespace fewbit
