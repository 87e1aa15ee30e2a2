// SPDX-License-Identifier: Apache-2.0
// Elements of an array that are no numbers, found at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fewbit/checkpoint.hpp"

namespace fewbit {

enum class Bad { nan_or_infinite, nan };

struct BadElements {
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // element
};

// Whether the type has codes that are NaN or infinite, and is of 8, 16 or 32 bits.
bool has_bad_elements(DType dtype);
// Precondition: has_bad_elements(dtype).
BadElements find_bad_elements(DType dtype, Bad bad, std::span<const std::byte> bytes);
// Of a whole tensor, whose bytes are values of that type. Its pages are given back on the way.
BadElements find_bad_elements(DType dtype, Bad bad, const Checkpoint& checkpoint,
                              const TensorInfo& info);

}  // namespace fewbit
