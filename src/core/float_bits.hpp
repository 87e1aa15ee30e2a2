// SPDX-License-Identifier: Apache-2.0
// Building blocks of float_convert.hpp. A magnitude is a small float without its sign:
// exponent << mantissa_bits | mantissa. Everything is exact, so nothing depends on a rounding
// mode, on flushed subnormals or on the compiler.
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
  const std::uint32_t hidden = static_cast<std::uint32_t>(field != 0) << 23;
  const std::uint32_t significand = (abs_bits & 0x7fffffU) | hidden;
  // Exponent field minus one; negative below the smallest normal. Signs as masks: the compiler
  // makes jumps of a conditional here, which data between normal and subnormal mispredicts.
  const int above = field - 128 + bias;
  const int base = above & ~(above >> 31);                    // max(above, 0)
  const int beyond = 23 - mantissa_bits + base - above - 31;  // of the longest shift
  const int shift = 31 + (beyond & (beyond >> 31));           // min(…, 31)
  const std::uint32_t rounded = shift_right_rne(significand, shift);
  // The hidden bit of `rounded` adds one to the exponent field, as does a carry.
  return rounded + (static_cast<std::uint32_t>(base) << mantissa_bits);
}

// f32 bits of a finite magnitude, exact. Magnitudes of at most 2^16 - 1, bias < 127.
template <int mantissa_bits, int bias>
constexpr FEWBIT_HD std::uint32_t expand_magnitude(std::uint32_t magnitude) {
  constexpr std::uint32_t smallest_normal = static_cast<std::uint32_t>(128 - bias) << 23;
  const std::uint32_t normal =
      (magnitude << (23 - mantissa_bits)) + (static_cast<std::uint32_t>(127 - bias) << 23);
  // With its exponent field raised by one, a subnormal reads 2^(1-bias) + value. A normal number
  // takes the same way with nothing added, so that there is no jump.
  const std::uint32_t subnormal = static_cast<std::uint32_t>((magnitude >> mantissa_bits) == 0U);
  const std::uint32_t lifted = normal + (subnormal << 23);
  return of(to_f32(lifted) - to_f32((0U - subnormal) & smallest_normal));
}

// As expand_magnitude for a format with 5 exponent bits and IEEE infinity and NaN, which become
// those of f32; a NaN keeps its payload and becomes quiet.
template <int mantissa_bits>
constexpr FEWBIT_HD std::uint32_t expand_ieee_magnitude(std::uint32_t magnitude) {
  constexpr std::uint32_t code_of_infinity = 31U << mantissa_bits;
  const std::uint32_t special = 0U - static_cast<std::uint32_t>(magnitude >= code_of_infinity);
  const std::uint32_t nan = static_cast<std::uint32_t>(magnitude > code_of_infinity);
  // Exponent field 31, expanded to 31 + 127 - 15, becomes 255.
  const std::uint32_t raised =
      expand_magnitude<mantissa_bits, 15>(magnitude) + (special & (112U << 23));
  return raised | (nan << 22);
}

}  // namespace fewbit::float_bits
