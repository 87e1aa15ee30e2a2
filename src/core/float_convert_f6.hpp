// SPDX-License-Identifier: Apache-2.0
// The OCP 6-bit floats, sign in bit 5, every code finite. E3M2: bias 3, largest 28. E2M3: bias 1,
// largest 7.5. The two high bits of a byte are ignored.
#pragma once

#include <cstdint>

#include "core/float_bits.hpp"
#include "core/hd.hpp"

namespace fewbit {
namespace float_bits {

template <int mantissa_bits, int bias>
constexpr FEWBIT_HD float f6_to_f32(std::uint8_t code) {
  const std::uint32_t sign = (code & 0x20U) << 26;
  return to_f32(sign | expand_magnitude<mantissa_bits, bias>(code & 0x1fU));
}

template <int mantissa_bits, int bias>
constexpr FEWBIT_HD std::uint8_t f32_to_f6(float x) {
  const std::uint32_t bits = of(x);
  const std::uint32_t rounded = round_magnitude<mantissa_bits, bias>(bits & ~sign_bit);
  const std::uint32_t magnitude = rounded > 0x1fU ? 0x1fU : rounded;
  return static_cast<std::uint8_t>(((bits >> 26) & 0x20U) | magnitude);
}

}  // namespace float_bits

constexpr FEWBIT_HD float f6_e3m2_to_f32(std::uint8_t code) {
  return float_bits::f6_to_f32<2, 3>(code);
}
// Saturates: infinities and NaN become +-28 by their sign. Zero results keep the sign.
constexpr FEWBIT_HD std::uint8_t f32_to_f6_e3m2(float x) { return float_bits::f32_to_f6<2, 3>(x); }

constexpr FEWBIT_HD float f6_e2m3_to_f32(std::uint8_t code) {
  return float_bits::f6_to_f32<3, 1>(code);
}
// Saturates: infinities and NaN become +-7.5 by their sign. Zero results keep the sign.
constexpr FEWBIT_HD std::uint8_t f32_to_f6_e2m3(float x) { return float_bits::f32_to_f6<3, 1>(x); }

}  // namespace fewbit
