// SPDX-License-Identifier: Apache-2.0
// Activations in memory: codes of bf16, or f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/float_convert.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

inline float element_value(std::uint16_t code) { return bf16_to_f32(code); }
inline float element_value(float value) { return value; }

template <class T>
T round_to_element(float value);
template <>
inline std::uint16_t round_to_element<std::uint16_t>(float value) {
  return f32_to_bf16(value);
}
template <>
inline float round_to_element<float>(float value) {
  return value;
}

// Arrays that were carved for elements, so aligned.
template <class T>
std::span<T> elements(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}
template <class T>
std::span<const T> elements(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

inline std::int64_t element_bytes(DType dtype) { return dtype_bits(dtype) / 8; }
inline std::size_t to_size(std::int64_t count) { return static_cast<std::size_t>(count); }

// Calls fn with a value of the element's storage type; dtype is bf16 or f32.
template <class Fn>
void with_element_type(DType dtype, Fn&& fn) {
  if (dtype == DType::f32) {
    fn(float{});
  } else {
    fn(std::uint16_t{});
  }
}

}  // namespace fewbit
