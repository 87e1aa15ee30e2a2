// SPDX-License-Identifier: Apache-2.0
// What a report needs to know of many scale bytes, at the speed of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fewbit {

struct ByteRange {
  std::uint8_t first = 0;
  std::uint8_t last = 0;
};

// How many bytes lie in the range.
std::int64_t count_between(std::span<const std::byte> bytes, ByteRange range);

// The range that all bytes lie in; 255 to 0 of none.
ByteRange extent_of(std::span<const std::byte> bytes);

// The largest byte of the range; 0 where none lies in it.
std::uint8_t largest_between(std::span<const std::byte> bytes, ByteRange range);

}  // namespace fewbit
