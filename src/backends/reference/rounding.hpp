// SPDX-License-Identifier: Apache-2.0
// From double to an activation type in one rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/float_convert.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// To f32 by truncation, with the last bit set when anything was cut off (round to odd). Rounding
// the result to a type with at least two bits less gives what one rounding of x would.
inline float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const double back = nearest;
  if (back == x || std::isnan(x) || std::isinf(x)) return nearest;
  float truncated = nearest;
  if (std::abs(back) > std::abs(x)) truncated = std::nextafterf(nearest, 0.0F);
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(truncated) | 1U);
}

// The nearest f32, bf16 or f16 (ties to even, overflow to infinity); any other dtype is taken as
// f32.
inline float round_to(DType dtype, double x) {
  switch (dtype) {
    case DType::bf16:
      return bf16_to_f32(f32_to_bf16(round_to_odd(x)));
    case DType::f16:
      return f16_to_f32(f32_to_f16(round_to_odd(x)));
    default:
      return static_cast<float>(x);
  }
}

// Writes element `index` of a bf16, f16 or f32 array, rounded once.
inline void store_rounded(DType dtype, std::byte* array, std::int64_t index, double x) {
  if (dtype == DType::f32) {
    const auto value = static_cast<float>(x);
    std::memcpy(array + index * 4, &value, 4);
    return;
  }
  const float odd = round_to_odd(x);
  const std::uint16_t bits = dtype == DType::bf16 ? f32_to_bf16(odd) : f32_to_f16(odd);
  std::memcpy(array + index * 2, &bits, 2);
}

}  // namespace fewbit
