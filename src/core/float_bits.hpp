// SPDX-License-Identifier: Apache-2.0
// Building blocks of float_convert.hpp. A magnitude is a small float without its sign:
// exponent << mantissa_bits | mantissa. Integers only, so nothing depends on a rounding mode, on
// flushed subnormals or on the compiler.
#pragma once

#include <cstdint>

#include "core/hd.hpp"

namespace fewbit::float_bits {

inline constexpr std::uint32_t sign_bit = 0x80000000U;
inline constexpr std::uint32_t infinity = 0x7f800000U;
inline constexpr std::uint32_t quiet_nan = 0x7fc00000U;

// std::bit_cast is not callable from CUDA device code; the builtin under it is.
constexpr FEWBIT_HD std::uint32_t of(float x) { return __builtin_bit_cast(std::uint32_t, x); }
constexpr FEWBIT_HD float to_f32(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// value / 2^shift, nearest, ties to even. shift in [1, 31], value < 2^30.
constexpr FEWBIT_HD std::uint32_t shift_right_rne(std::uint32_t value, int shift) {
  const std::uint32_t below_half = (1U << (shift - 1)) - 1U;
  return (value + below_half + ((value >> shift) & 1U)) >> shift;
}

// The magnitude nearest to |x|, ties to even, subnormals included. No upper bound: the caller
// compares with its largest magnitude. Infinity and NaN give something above every magnitude.
// abs_bits: bits of |x| as f32. Smaller formats only: bias < 127.
template <int mantissa_bits, int bias>
constexpr FEWBIT_HD std::uint32_t round_magnitude(std::uint32_t abs_bits) {
  static_assert(mantissa_bits >= 1 && mantissa_bits < 23 && bias >= 0 && bias < 127);
  const int field = static_cast<int>(abs_bits >> 23);
  const std::uint32_t hidden = field == 0 ? 0U : 0x800000U;
  const std::uint32_t significand = (abs_bits & 0x7fffffU) | hidden;
  const int exponent = field - 127 + bias;            // wanted exponent field, if normal
  const int below = exponent < 1 ? 1 - exponent : 0;  // binades below the smallest normal
  const int shift = 23 - mantissa_bits + below;
  const std::uint32_t rounded = shift_right_rne(significand, shift > 31 ? 31 : shift);
  // The hidden bit of `rounded` adds one to the exponent field, as does a carry.
  return rounded + (static_cast<std::uint32_t>(exponent + below - 1) << mantissa_bits);
}

// f32 bits of a finite magnitude, exact. Magnitudes of at most 2^16 - 1, bias < 127.
template <int mantissa_bits, int bias>
constexpr FEWBIT_HD std::uint32_t expand_magnitude(std::uint32_t magnitude) {
  const std::uint32_t normal =
      (magnitude << (23 - mantissa_bits)) + (static_cast<std::uint32_t>(127 - bias) << 23);
  // With its exponent field raised by one, a subnormal reads 2^(1-bias) + value.
  constexpr std::uint32_t smallest_normal = static_cast<std::uint32_t>(128 - bias) << 23;
  const float subnormal = to_f32(normal + (1U << 23)) - to_f32(smallest_normal);
  return (magnitude >> mantissa_bits) == 0 ? of(subnormal) : normal;
}

}  // namespace fewbit::float_bits
