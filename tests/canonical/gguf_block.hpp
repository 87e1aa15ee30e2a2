// SPDX-License-Identifier: Apache-2.0
// Blocks of GGUF types by name, byte by byte.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "canonical/gguf_blocks.hpp"

namespace fewbit {

using Block = std::vector<std::uint8_t>;

inline const GgufType& type_named(std::string_view name) {
  const GgufType* type = find_gguf_type(name);
  EXPECT_NE(type, nullptr) << name;
  return *type;
}

inline std::vector<float> decode(const GgufType& type, const Block& block) {
  std::vector<float> out(block.size() / static_cast<std::size_t>(type.bytes) *
                         static_cast<std::size_t>(type.elements));
  const auto result = decode_gguf_blocks(type, std::as_bytes(std::span(block)), out);
  EXPECT_TRUE(result) << (result ? "" : result.error().message());
  return out;
}

inline constexpr std::uint8_t one_low = 0x00;  // f16 1.0 is 0x3c00
inline constexpr std::uint8_t one_high = 0x3c;

inline void set_one(Block& block, std::size_t at) {
  block[at] = one_low;
  block[at + 1] = one_high;
}

}  // namespace fewbit
