// SPDX-License-Identifier: Apache-2.0
// E2M1 (bias 1, sign in bit 3, every code finite: 0 0.5 1 1.5 2 3 4 6) and the fixed codebooks of 3
// and 4 bits. High bits of a code byte are ignored.
#pragma once

#include <cstdint>

#include "core/float_bits.hpp"
#include "core/hd.hpp"

namespace fewbit {

// Code 8 is -0.
constexpr FEWBIT_HD float f4_e2m1_to_f32(std::uint8_t code) {
  const std::uint32_t sign = (code & 8U) << 28;
  return float_bits::to_f32(sign | float_bits::expand_magnitude<1, 1>(code & 7U));
}

namespace float_bits {

// Code of |x|, saturating at 6 (NaN too). Seven comparisons with the midpoints, as integers.
constexpr FEWBIT_HD std::uint32_t f4_magnitude(std::uint32_t abs_bits) {
  return static_cast<std::uint32_t>(abs_bits > of(0.25F)) +
         static_cast<std::uint32_t>(abs_bits >= of(0.75F)) +
         static_cast<std::uint32_t>(abs_bits > of(1.25F)) +
         static_cast<std::uint32_t>(abs_bits >= of(1.75F)) +
         static_cast<std::uint32_t>(abs_bits > of(2.5F)) +
         static_cast<std::uint32_t>(abs_bits >= of(3.5F)) +
         static_cast<std::uint32_t>(abs_bits > of(5.0F));
}

// The same with ties to the smaller magnitude.
constexpr FEWBIT_HD std::uint32_t f4_magnitude_ties_down(std::uint32_t abs_bits) {
  return static_cast<std::uint32_t>(abs_bits > of(0.25F)) +
         static_cast<std::uint32_t>(abs_bits > of(0.75F)) +
         static_cast<std::uint32_t>(abs_bits > of(1.25F)) +
         static_cast<std::uint32_t>(abs_bits > of(1.75F)) +
         static_cast<std::uint32_t>(abs_bits > of(2.5F)) +
         static_cast<std::uint32_t>(abs_bits > of(3.5F)) +
         static_cast<std::uint32_t>(abs_bits > of(5.0F));
}

}  // namespace float_bits

// Saturates at +-6, NaN too (by its sign). A result of zero is code 0 whatever the sign.
constexpr FEWBIT_HD std::uint8_t f32_to_f4_e2m1(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t magnitude = float_bits::f4_magnitude(bits & ~float_bits::sign_bit);
  const std::uint32_t sign = magnitude == 0U ? 0U : (bits >> 28) & 8U;
  return static_cast<std::uint8_t>(sign | magnitude);
}

// As f32_to_f4_e2m1, but the sign bit is always copied: -0 and small negatives give code 8.
// compressed-tensors encodes so.
constexpr FEWBIT_HD std::uint8_t f32_to_f4_e2m1_signed_zero(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t magnitude = float_bits::f4_magnitude(bits & ~float_bits::sign_bit);
  return static_cast<std::uint8_t>(((bits >> 28) & 8U) | magnitude);
}

// Ties go to the smaller magnitude and the sign bit is copied, as auto-round's MXFP4; ModelOpt's
// MXFP4 differs from this only in an exact zero, which it always gives code 8.
constexpr FEWBIT_HD std::uint8_t f32_to_f4_e2m1_ties_down(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t magnitude = float_bits::f4_magnitude_ties_down(bits & ~float_bits::sign_bit);
  return static_cast<std::uint8_t>(((bits >> 28) & 8U) | magnitude);
}

// NF3 "nf3_2p1" as its definition writes it. There is no zero. The f32 value is this, rounded.
constexpr FEWBIT_HD double nf3_to_f64(std::uint8_t code) {
  constexpr double values[8] = {-1.0, -0.6047, -0.3563, -0.1275, 0.1275, 0.3563, 0.6047, 1.0};
  return values[code & 7U];
}
constexpr FEWBIT_HD float nf3_to_f32(std::uint8_t code) {
  return static_cast<float>(nf3_to_f64(code));
}

// NF4 of bitsandbytes.
constexpr FEWBIT_HD float nf4_to_f32(std::uint8_t code) {
  constexpr float values[16] = {-1.0F,
                                -0.6961928009986877F,
                                -0.5250730514526367F,
                                -0.39491748809814453F,
                                -0.28444138169288635F,
                                -0.18477343022823334F,
                                -0.09105003625154495F,
                                0.0F,
                                0.07958029955625534F,
                                0.16093020141124725F,
                                0.24611230194568634F,
                                0.33791524171829224F,
                                0.44070982933044434F,
                                0.5626170039176941F,
                                0.7229568362236023F,
                                1.0F};
  return values[code & 15U];
}

// IQ4_NL of ggml, in units of the block's scale.
constexpr FEWBIT_HD std::int8_t iq4_nl_to_i8(std::uint8_t code) {
  constexpr std::int8_t values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
  return values[code & 15U];
}

// Nearest value of a codebook; a tie takes the lower code in NF3 and NF4 and the higher one in
// IQ4_NL, as their producers do. Outside the range the nearest end; NaN gives code 0.
constexpr FEWBIT_HD std::uint8_t f32_to_nf3(float x) {
  unsigned code = 0;
  for (unsigned c = 0; c < 7U; ++c) {
    const double low = nf3_to_f64(static_cast<std::uint8_t>(c));
    const double high = nf3_to_f64(static_cast<std::uint8_t>(c + 1U));
    code += static_cast<unsigned>(static_cast<double>(x) > 0.5 * (low + high));
  }
  return static_cast<std::uint8_t>(code);
}
constexpr FEWBIT_HD std::uint8_t f32_to_nf4(float x) {
  unsigned code = 0;
  for (unsigned c = 0; c < 15U; ++c) {
    const float low = nf4_to_f32(static_cast<std::uint8_t>(c));
    const float high = nf4_to_f32(static_cast<std::uint8_t>(c + 1U));
    code += static_cast<unsigned>(x > 0.5F * (low + high));
  }
  return static_cast<std::uint8_t>(code);
}
constexpr FEWBIT_HD std::uint8_t f32_to_iq4_nl(float x) {
  unsigned code = 0;
  for (unsigned c = 0; c < 15U; ++c) {
    const int twice_midpoint = iq4_nl_to_i8(static_cast<std::uint8_t>(c)) +
                               iq4_nl_to_i8(static_cast<std::uint8_t>(c + 1U));
    code += static_cast<unsigned>(x >= 0.5F * static_cast<float>(twice_midpoint));
  }
  return static_cast<std::uint8_t>(code);
}

}  // namespace fewbit
