// SPDX-License-Identifier: Apache-2.0
// bf16 (1/8/7, bias 127) and fp16 (1/5/10, bias 15), both as IEEE 754 defines formats.
#pragma once

#include <cstdint>

#include "core/float_bits.hpp"
#include "core/hd.hpp"

namespace fewbit {

constexpr FEWBIT_HD float bf16_to_f32(std::uint16_t code) {
  return float_bits::to_f32(static_cast<std::uint32_t>(code) << 16);
}

// Overflow gives infinity. A NaN keeps its sign and high payload and becomes quiet.
constexpr FEWBIT_HD std::uint16_t f32_to_bf16(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & ~float_bits::sign_bit) > float_bits::infinity;
  return static_cast<std::uint16_t>(nan ? (bits >> 16) | 0x40U : rounded);
}

// A NaN keeps its sign and payload and becomes quiet, as the F16C instructions do.
constexpr FEWBIT_HD float f16_to_f32(std::uint16_t code) {
  const std::uint32_t sign = (code & 0x8000U) << 16;
  return float_bits::to_f32(sign | float_bits::expand_ieee_magnitude<10>(code & 0x7fffU));
}

// Overflow (65520 and above) gives infinity. A NaN keeps its sign and high payload, quiet.
constexpr FEWBIT_HD std::uint16_t f32_to_f16(float x) {
  const std::uint32_t bits = float_bits::of(x);
  const std::uint32_t abs_bits = bits & ~float_bits::sign_bit;
  std::uint32_t magnitude = float_bits::round_magnitude<10, 15>(abs_bits);
  if (magnitude > 0x7c00U) magnitude = 0x7c00U;
  if (abs_bits > float_bits::infinity) magnitude = 0x7e00U | ((abs_bits >> 13) & 0x3ffU);
  return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | magnitude);
}

}  // namespace fewbit
