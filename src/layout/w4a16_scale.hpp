// SPDX-License-Identifier: Apache-2.0
// How W4A16 kernels want scales: formulas for one scale.
//
// The kernels move the four bits of an e2m1 code into a bf16 or f16 as they are, which gives its
// value times 2^-bias, and multiply by a block scale that was stored as 128 * scale * factor. The
// global scale repays all three.
#pragma once

#include <cstdint>

#include "core/float_convert.hpp"
#include "core/hd.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// Of activation_dtype bf16: e2m1 bits dropped into it mean value * 2^-126; of f16: * 2^-14.
// Stored global scale = global * 2^(bias - 7) / factor.
constexpr float w4a16_global_lift(DType activation_dtype) {
  return activation_dtype == DType::bf16 ? 0x1p119F : 0x1p7F;
}

// Power of two that all block scales of a tensor are multiplied by, so that small ones survive the
// byte encoding. max_scale: the largest positive scale of all experts, 0 without one.
//   f16: 1 (the engines never rescale there)
//   bf16: the largest power of two with max_scale * factor <= 448, at least 1
constexpr float nvfp4_scale_factor(float max_scale, DType activation_dtype) {
  float factor = 1.0F;
  if (activation_dtype != DType::bf16 || !(max_scale > 0.0F)) return factor;
  while (max_scale * (factor * 2.0F) <= 448.0F) factor *= 2.0F;
  return factor;
}

// 128 * scale * factor as an unsigned 5-bit exponent (bias 15) and 3-bit mantissa. Every step is
// rounded to f16 as the engines do. Below 2, and so negative values too: 0. A NaN becomes 0xff, a
// finite value for the kernels: callers count NaN scales.
constexpr FEWBIT_HD std::uint8_t nvfp4_scale_byte(float scale, float factor) {
  float value = f16_to_f32(f32_to_f16(scale));
  if (factor > 1.0F) value = f16_to_f32(f32_to_f16(value * factor));
  value = f16_to_f32(f32_to_f16(value * 128.0F));
  if (value != value) return 0xff;
  if (value < 2.0F) return 0;
  return static_cast<std::uint8_t>(f32_to_f16(value) >> 7);
}

// What the kernels read from the byte: 128 * scale * factor again.
constexpr FEWBIT_HD float nvfp4_scale_byte_value(std::uint8_t byte) {
  return f16_to_f32(static_cast<std::uint16_t>(byte << 7));
}

// e8m0 scales stay bytes, limited so that the kernels' exponent byte + 7 stays finite.
constexpr FEWBIT_HD std::uint8_t e8m0_scale_byte(std::uint8_t scale) {
  constexpr std::uint8_t largest = 247;
  return scale < largest ? scale : largest;
}

}  // namespace fewbit
