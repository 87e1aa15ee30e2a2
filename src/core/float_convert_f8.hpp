// SPDX-License-Identifier: Apache-2.0
// The OCP 8-bit floats. E4M3FN: bias 7, no infinity, NaN only 0x7f and 0xff, largest 448.
// E5M2: bias 15, as IEEE 754 (infinity 0x7c, NaN 0x7d to 0x7f), largest 57344.
// In both a NaN keeps its sign; -0 and results that round to zero keep theirs.
#pragma once

#include <cstdint>

#include "core/float_bits.hpp"
#include "core/hd.hpp"

namespace fewbit {

constexpr FEWBIT_HD float f8_e4m3_to_f32(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24;
  const std::uint32_t magnitude = code & 0x7fU;
  const std::uint32_t finite = float_bits::expand_magnitude<3, 7>(magnitude);
  // By a mask: NaN must not cost the other codes a jump.
  const std::uint32_t nan = 0U - static_cast<std::uint32_t>(magnitude == 0x7fU);
  return float_bits::to_f32(sign | finite | (nan & float_bits::quiet_nan));
}

// NaN when the rounded magnitude is above 448 (|x| > 464), as PyTorch's cast.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e4m3(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t rounded = float_bits::round_magnitude<3, 7>(bits & ~float_bits::sign_bit);
  const std::uint32_t magnitude = rounded > 0x7fU ? 0x7fU : rounded;
  return static_cast<std::uint8_t>(((bits >> 24) & 0x80U) | magnitude);
}

// Clamps to +-448, infinities too; NaN stays NaN.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e4m3_sat(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t abs_bits = bits & ~float_bits::sign_bit;
  const std::uint32_t rounded = float_bits::round_magnitude<3, 7>(abs_bits);
  const std::uint32_t clamped = rounded > 0x7eU ? 0x7eU : rounded;
  const std::uint32_t magnitude = abs_bits > float_bits::infinity ? 0x7fU : clamped;
  return static_cast<std::uint8_t>(((bits >> 24) & 0x80U) | magnitude);
}

constexpr FEWBIT_HD float f8_e5m2_to_f32(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x80U) << 24;
  return float_bits::to_f32(sign | float_bits::expand_ieee_magnitude<2>(code & 0x7fU));
}

// Infinity when the rounded magnitude is above 57344 (|x| >= 61440).
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e5m2(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t abs_bits = bits & ~float_bits::sign_bit;
  const std::uint32_t rounded = float_bits::round_magnitude<2, 15>(abs_bits);
  const std::uint32_t clamped = rounded > 0x7cU ? 0x7cU : rounded;
  const std::uint32_t magnitude = abs_bits > float_bits::infinity ? 0x7fU : clamped;
  return static_cast<std::uint8_t>(((bits >> 24) & 0x80U) | magnitude);
}

// Clamps to +-57344, infinities too; NaN stays NaN.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e5m2_sat(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t abs_bits = bits & ~float_bits::sign_bit;
  const std::uint32_t rounded = float_bits::round_magnitude<2, 15>(abs_bits);
  const std::uint32_t clamped = rounded > 0x7bU ? 0x7bU : rounded;
  const std::uint32_t magnitude = abs_bits > float_bits::infinity ? 0x7fU : clamped;
  return static_cast<std::uint8_t>(((bits >> 24) & 0x80U) | magnitude);
}

}  // namespace fewbit
