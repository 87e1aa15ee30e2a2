// SPDX-License-Identifier: Apache-2.0
// The 8-bit floats without infinity and without negative zero: 0x80 is the only NaN.
// E4M3FNUZ: bias 8, largest 240. E5M2FNUZ: bias 16, largest 57344.
#pragma once

#include <cstdint>

#include "core/float_bits.hpp"
#include "core/hd.hpp"

namespace fewbit {
namespace float_bits {

inline constexpr std::uint32_t fnuz_nan = 0x80U;

template <int mantissa_bits, int bias>
constexpr FEWBIT_HD float fnuz_to_f32(std::uint8_t code) {
  const std::uint32_t finite = expand_magnitude<mantissa_bits, bias>(code & 0x7fU);
  const std::uint32_t sign = (code & 0x80U) << 24;
  return to_f32(code == fnuz_nan ? quiet_nan : sign | finite);
}

// overflow: the code of a positive result above the largest magnitude 0x7f; the sign is added
// unless it is NaN.
template <int mantissa_bits, int bias>
constexpr FEWBIT_HD std::uint8_t f32_to_fnuz(float x, std::uint32_t overflow) {
  const std::uint32_t bits = of(x);
  const std::uint32_t abs_bits = bits & ~sign_bit;
  const std::uint32_t rounded = round_magnitude<mantissa_bits, bias>(abs_bits);
  const std::uint32_t magnitude = rounded > 0x7fU ? overflow : rounded;
  const std::uint32_t sign = magnitude == 0U ? 0U : (bits >> 24) & 0x80U;
  return static_cast<std::uint8_t>(abs_bits > infinity ? fnuz_nan : sign | magnitude);
}

}  // namespace float_bits

constexpr FEWBIT_HD float f8_e4m3fnuz_to_f32(std::uint8_t code) {
  return float_bits::fnuz_to_f32<3, 8>(code);
}
// NaN when the rounded magnitude is above 240.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e4m3fnuz(float x) {
  return float_bits::f32_to_fnuz<3, 8>(x, float_bits::fnuz_nan);
}
// Clamps to +-240, infinities too; NaN stays NaN.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e4m3fnuz_sat(float x) {
  return float_bits::f32_to_fnuz<3, 8>(x, 0x7fU);
}

constexpr FEWBIT_HD float f8_e5m2fnuz_to_f32(std::uint8_t code) {
  return float_bits::fnuz_to_f32<2, 16>(code);
}
// NaN when the rounded magnitude is above 57344.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e5m2fnuz(float x) {
  return float_bits::f32_to_fnuz<2, 16>(x, float_bits::fnuz_nan);
}
// Clamps to +-57344, infinities too; NaN stays NaN.
constexpr FEWBIT_HD std::uint8_t f32_to_f8_e5m2fnuz_sat(float x) {
  return float_bits::f32_to_fnuz<2, 16>(x, 0x7fU);
}

}  // namespace fewbit
