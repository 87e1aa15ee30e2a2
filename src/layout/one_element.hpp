// SPDX-License-Identifier: Apache-2.0
// Elements of 1 to 32 bits, a power of two, at places of a buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "layout/place.hpp"

namespace fewbit {

inline Place place_at(std::int64_t bit_address) {
  return {.byte = bit_address / 8, .bit = static_cast<int>(bit_address % 8)};
}

inline std::uint64_t mask_of(int bits) { return (std::uint64_t{2} << (bits - 1)) - 1; }

inline std::uint64_t read_element(const std::byte* from, Place place, int bits) {
  std::uint64_t value = 0;
  for (int i = 0; i < std::max(bits / 8, 1); ++i) {
    value |= std::to_integer<std::uint64_t>(from[place.byte + i]) << (8 * i);
  }
  return value >> place.bit & mask_of(bits);
}

inline void write_element(std::byte* to, Place place, int bits, std::uint64_t value) {
  if (bits < 8) {
    const auto kept =
        std::to_integer<std::uint64_t>(to[place.byte]) & ~(mask_of(bits) << place.bit);
    to[place.byte] = static_cast<std::byte>(kept | value << place.bit);
    return;
  }
  for (int i = 0; i < bits / 8; ++i) to[place.byte + i] = static_cast<std::byte>(value >> (8 * i));
}

}  // namespace fewbit
