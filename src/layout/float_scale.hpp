// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>

#include "core/float_convert.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// One of the scales in f32, bf16 or f16; bytes may be unaligned.
inline float load_scale(const TensorView& scales, std::int64_t index) {
  if (scales.dtype == DType::f32) {
    float value = 0.0F;
    std::memcpy(&value, scales.bytes.data() + index * 4, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, scales.bytes.data() + index * 2, sizeof bits);
  return scales.dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
}

}  // namespace fewbit
