// SPDX-License-Identifier: Apache-2.0
// Fields of 1 to 8 bits in a dense little-endian bit stream, which is also what 32-bit words filled
// from their low bits are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fewbit {

// Bits [bit, bit + width); the stream holds them.
inline std::uint32_t stream_bits(std::span<const std::byte> stream, std::uint64_t bit, int width) {
  const std::uint64_t byte = bit / 8;
  const auto shift = static_cast<unsigned>(bit % 8);
  std::uint32_t word = std::to_integer<std::uint32_t>(stream[byte]);
  if (shift + static_cast<unsigned>(width) > 8) {
    word |= std::to_integer<std::uint32_t>(stream[byte + 1]) << 8U;
  }
  return (word >> shift) & ((1U << static_cast<unsigned>(width)) - 1U);
}

// Ors the low bits of value into bits [bit, bit + width), which are zero.
inline void add_stream_bits(std::span<std::byte> stream, std::uint64_t bit, int width,
                            std::uint32_t value) {
  const std::uint64_t byte = bit / 8;
  const auto shift = static_cast<unsigned>(bit % 8);
  const std::uint32_t word = (value & ((1U << static_cast<unsigned>(width)) - 1U)) << shift;
  stream[byte] |= static_cast<std::byte>(word & 0xFFU);
  if (shift + static_cast<unsigned>(width) > 8) {
    stream[byte + 1] |= static_cast<std::byte>(word >> 8U);
  }
}

}  // namespace fewbit
