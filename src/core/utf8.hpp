// SPDX-License-Identifier: Apache-2.0
// Well-formed UTF-8 as in RFC 3629: no overlong forms, no surrogates, nothing past U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace fewbit {

// Bytes of the well-formed sequence at `at` (1 to 4), 0 when there is none. at < text.size().
constexpr std::size_t utf8_sequence_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[at + i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < length) return 0;
  // The second byte alone decides overlong forms, surrogates and the upper end.
  const std::uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const std::uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  return length;
}

// Offset of the first byte that is not part of a well-formed sequence; text.size() when all is
// well.
constexpr std::size_t utf8_valid_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = utf8_sequence_length(text, at);
    if (length == 0) break;
    at += length;
  }
  return at;
}

constexpr bool is_utf8(std::string_view text) { return utf8_valid_prefix(text) == text.size(); }

}  // namespace fewbit
