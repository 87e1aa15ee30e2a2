// SPDX-License-Identifier: Apache-2.0
// The printable spelling that byte-level BPE gives to bytes: printable Latin-1 stands for itself,
// the other 68 bytes are U+0100 … U+0143 in order (the scheme of GPT-2).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fewbit {

constexpr bool byte_spells_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<char32_t, 256> make_byte_spelling() {
  std::array<char32_t, 256> spelling{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    spelling[static_cast<std::size_t>(byte)] =
        byte_spells_itself(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return spelling;
}
// byte -> code point
inline constexpr std::array<char32_t, 256> byte_spelling = make_byte_spelling();

// The bytes that a spelled token stands for; empty when a character of it spells no byte.
std::optional<std::string> bytes_of_spelling(std::string_view spelled);

}  // namespace fewbit
