// SPDX-License-Identifier: Apache-2.0
// Number formats that only scales have, all without a sign: E8M0, E5M3, UE4M3.
#pragma once

#include <cstdint>

#include "core/float_bits.hpp"
#include "core/float_convert_f8.hpp"
#include "core/hd.hpp"

namespace fewbit {

// E8M0: byte b is 2^(b-127), 255 is NaN. There is no zero.
constexpr FEWBIT_HD float f8_e8m0_to_f32(std::uint8_t code) {
  const std::uint32_t normal = static_cast<std::uint32_t>(code) << 23;
  const std::uint32_t bits = code == 0U ? 0x00400000U : normal;
  return float_bits::to_f32(code == 255U ? float_bits::quiet_nan : bits);
}

// The encoders of E8M0 look at |x| only. Zero gives byte 0 (2^-127), NaN gives 255.

// Nearest power of two, a tie (significand 1.5) up. 1.5 * 2^127 and above, infinity too, give 255.
// What lies between 2^-127 and 2^-126 goes up, as PyTorch and ml_dtypes have it.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e8m0(float x) {
  const std::uint32_t abs_bits = float_bits::of(x) & ~float_bits::sign_bit;
  const std::uint32_t subnormal = abs_bits > 0x00400000U ? 1U : 0U;
  const std::uint32_t normal = (abs_bits + 0x00400000U) >> 23;
  const std::uint32_t code = abs_bits < 0x00800000U ? subnormal : normal;
  return static_cast<std::uint8_t>(code > 255U ? 255U : code);
}

// Largest power of two <= |x| (OCP MX v1.0). Below 2^-127: byte 0. Infinity gives 254.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e8m0_floor(float x) {
  const std::uint32_t abs_bits = float_bits::of(x) & ~float_bits::sign_bit;
  const std::uint32_t code = abs_bits == float_bits::infinity ? 254U : abs_bits >> 23;
  return static_cast<std::uint8_t>(code);
}

// Smallest power of two >= |x| (ModelOpt). Above 2^127, infinity too: 254, the largest there is.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e8m0_ceil(float x) {
  const std::uint32_t abs_bits = float_bits::of(x) & ~float_bits::sign_bit;
  const std::uint32_t subnormal = abs_bits > 0x00400000U ? 1U : 0U;
  const std::uint32_t normal = (abs_bits + 0x007fffffU) >> 23;
  const std::uint32_t code = abs_bits < 0x00800000U ? subnormal : normal;
  const std::uint32_t finite = code > 254U ? 254U : code;
  return static_cast<std::uint8_t>(abs_bits > float_bits::infinity ? 255U : finite);
}

// E5M3 of auto-round: bias 15, byte 255 is NaN, largest 114688 (254), smallest 2^-17.
constexpr FEWBIT_HD float f8_e5m3_to_f32(std::uint8_t code) {
  const std::uint32_t finite = float_bits::expand_magnitude<3, 15>(code);
  return float_bits::to_f32(code == 255U ? float_bits::quiet_nan : finite);
}

// Clamps to [0, 114688], so negative values give 0; NaN gives 255.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e5m3(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t abs_bits = bits & ~float_bits::sign_bit;
  const std::uint32_t rounded = float_bits::round_magnitude<3, 15>(abs_bits);
  const std::uint32_t clamped = rounded > 254U ? 254U : rounded;
  const std::uint32_t finite = bits == abs_bits ? clamped : 0U;
  return static_cast<std::uint8_t>(abs_bits > float_bits::infinity ? 255U : finite);
}

// UE4M3, the block scale of NVFP4 in GGUF: E4M3FN without its sign. Bit 7 is ignored and 0x7f reads
// as 0, as ggml reads them; a validator reports both.
constexpr FEWBIT_HD float f8_ue4m3_to_f32(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fU;
  return magnitude == 0x7fU ? 0.0F : f8_e4m3_to_f32(static_cast<std::uint8_t>(magnitude));
}

// Clamps to [0, 448], so negative values give 0; NaN gives 0x7f.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_ue4m3(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t abs_bits = bits & ~float_bits::sign_bit;
  const bool negative = bits != abs_bits && abs_bits <= float_bits::infinity;
  return negative ? std::uint8_t{0} : f32_to_f8_e4m3_sat(float_bits::to_f32(abs_bits));
}

}  // namespace fewbit
