// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic that reports overflow, for every size that comes from a file.
#pragma once

#include <concepts>
#include <optional>

#include "core/hd.hpp"

namespace fewbit {

// Empty when the sum does not fit T.
template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T sum{};
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

// Empty when the difference does not fit T (below zero for an unsigned T).
template <std::integral T>
constexpr std::optional<T> checked_sub(T a, T b) {
  T difference{};
  if (__builtin_sub_overflow(a, b, &difference)) return std::nullopt;
  return difference;
}

// Empty when the product does not fit T.
template <std::integral T>
constexpr std::optional<T> checked_mul(T a, T b) {
  T product{};
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

// The value as another integer type; empty when it does not fit.
template <std::integral To, std::integral From>
constexpr std::optional<To> checked_cast(From value) {
  To result{};
  if (__builtin_add_overflow(value, From{0}, &result)) return std::nullopt;
  return result;
}

// a / b rounded up, for a >= 0 and b > 0.
template <std::integral T>
FEWBIT_HD constexpr T ceil_div(T a, T b) {
  return a / b + (a % b != 0 ? T{1} : T{0});
}

// The next multiple of `multiple` (> 0) at or above a (>= 0). The caller knows that it fits.
template <std::integral T>
FEWBIT_HD constexpr T round_up(T a, T multiple) {
  return ceil_div(a, multiple) * multiple;
}

// As round_up; empty when the result does not fit T.
template <std::integral T>
constexpr std::optional<T> checked_round_up(T a, T multiple) {
  return checked_mul(ceil_div(a, multiple), multiple);
}

}  // namespace fewbit
