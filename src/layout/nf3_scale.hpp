// SPDX-License-Identifier: Apache-2.0
// One scale of NF3 weights as a byte: unsigned, 4 exponent bits of bias 11 and 3 of mantissa.
//
// The kernels read the byte as bf16 bits shifted, which gives scale * 2^-116; the global scale is
// 2^116.
#pragma once

#include <cstdint>

#include "core/float_bits.hpp"
#include "core/float_convert.hpp"
#include "core/hd.hpp"
#include "fewbit/layouts.hpp"

namespace fewbit {

inline constexpr float nf3_global_scale = 0x1p116F;
inline constexpr float nf3_smallest_scale = 0x1p-10F;  // smaller ones, but not 0, are raised to it
inline constexpr float nf3_scale_end = 32.0F;          // scales are below

// As b12x: f16(scale) / 16 as f16, the high byte without the sign.
constexpr FEWBIT_HD std::uint8_t nf3_truncated_byte(float scale) {
  const float half = f16_to_f32(f32_to_f16(scale));
  return static_cast<std::uint8_t>(f32_to_f16(half * 0x1p-4F) << 1 >> 8);
}

// scale: 0, or nf3_smallest_scale to below nf3_scale_end.
constexpr FEWBIT_HD std::uint8_t nf3_nearest_byte(float scale) {
  if (scale == 0.0F) return 0;
  constexpr std::uint32_t exponent_offset = (127U - 11U) << 23;
  constexpr std::uint32_t largest = 0x7f;
  const std::uint32_t code =
      float_bits::shift_right_rne(float_bits::of(scale) - exponent_offset, 20);
  return static_cast<std::uint8_t>(code < largest ? code : largest);
}

// Any finite scale: raised to the smallest one first, negative ones too.
constexpr FEWBIT_HD std::uint8_t nf3_scale_byte(float scale, Nf3ScaleRounding rounding) {
  float raised = scale;
  if (scale != 0.0F && scale < nf3_smallest_scale) raised = nf3_smallest_scale;
  return rounding == Nf3ScaleRounding::nearest ? nf3_nearest_byte(raised)
                                               : nf3_truncated_byte(raised);
}

// What the kernels multiply with, global scale included.
constexpr FEWBIT_HD float nf3_scale_byte_value(std::uint8_t byte) {
  if (byte == 0) return 0.0F;
  return f16_to_f32(static_cast<std::uint16_t>(byte << 7)) * 16.0F;
}

}  // namespace fewbit
