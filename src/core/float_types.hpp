// SPDX-License-Identifier: Apache-2.0
// Types whose elements are numbers by themselves, without a scale.
#pragma once

#include "fewbit/tensor.hpp"

namespace fewbit {

// What models are computed in, and what float scales are stored as.
constexpr bool is_16_or_32_bit_float(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

constexpr bool is_plain_float(DType dtype) {
  return is_16_or_32_bit_float(dtype) || dtype == DType::f64;
}

}  // namespace fewbit
