// SPDX-License-Identifier: Apache-2.0
// Arrays of numbers between f32 and the byte-sized or wider float types of DType.
#pragma once

#include <cstddef>
#include <span>

#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// Both take f64, f32, f16, bf16, f8_e4m3, f8_e5m2, f8_e8m0, f8_e4m3fnuz and f8_e5m2fnuz. Bytes may
// be unaligned.
// Errors: unsupported (another dtype, by name), invalid_argument (sizes that differ: both numbers).

// Exact; f64 is rounded once to nearest even.
Result<void> convert_to_f32(DType from, std::span<const std::byte> source, std::span<float> target);

// One rounding to nearest even (f8_e8m0: to the nearest power of two, ties up). Overflow gives
// infinity, or NaN in the types without infinity: nothing saturates.
Result<void> convert_from_f32(std::span<const float> source, DType to, std::span<std::byte> target);

}  // namespace fewbit
