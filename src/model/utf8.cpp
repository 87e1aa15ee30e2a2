// SPDX-License-Identifier: Apache-2.0
#include "model/utf8.hpp"

#include <cstdint>

#include "core/utf8.hpp"

namespace fewbit {
namespace {

// Longest prefix of an ill-formed text that begins a well-formed sequence, at least 1: any second
// byte that is allowed can be completed by 0x80.
std::size_t maximal_subpart(std::string_view text) {
  for (std::size_t bytes = 3; bytes >= 2; --bytes) {
    if (text.size() < bytes) continue;
    const std::string completed = std::string(text.substr(0, bytes)) + "\x80\x80";
    if (utf8_sequence_length(completed, 0) > bytes) return bytes;
  }
  return 1;
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  const std::size_t bytes = utf8_sequence_length(text, 0);
  if (bytes == 0) return {maximal_subpart(text), replacement_character, false};
  const auto lead = static_cast<std::uint8_t>(text[0]);
  if (bytes == 1) return {1, lead, true};
  char32_t code_point = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    code_point = (code_point << 6) | (static_cast<std::uint8_t>(text[i]) & 0x3FU);
  }
  return {bytes, code_point, true};
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) {
    out.push_back(static_cast<char>(0x80U | ((code_point >> shift) & 0x3FU)));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.push_back(static_cast<char>(0xC0U | (code_point >> 6)));
    tail(0);
  } else if (code_point < 0x10000) {
    out.push_back(static_cast<char>(0xE0U | (code_point >> 12)));
    tail(6);
    tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0U | (code_point >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

}  // namespace fewbit
