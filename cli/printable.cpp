// SPDX-License-Identifier: Apache-2.0
#include "printable.hpp"

#include <fmt/format.h>

#include "core/control_text.hpp"
#include "core/utf8.hpp"

namespace fewbit::cli {
namespace {

constexpr char32_t non_joiner = 0x200c;
constexpr char32_t joiner = 0x200d;

std::string escaped(char32_t c) {
  const auto value = static_cast<std::uint32_t>(c);
  return value < 0x80 ? fmt::format("\\x{:02x}", value) : fmt::format("\\u{{{:04x}}}", value);
}

std::string escaped_json(char32_t c) {
  const auto value = static_cast<std::uint32_t>(c);
  if (value < 0x10000) return fmt::format("\\u{:04x}", value);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xd7c0 + (value >> 10), 0xdc00 + (value & 0x3ff));
}

// Control characters that keep() does not know go through escape().
template <class Keep, class Escape>
std::string replaced(std::string_view text, const Keep& keep, const Escape& escape) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_sequence_length(text, at);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at++]));
      continue;
    }
    const std::string_view piece = text.substr(at, length);
    const char32_t c = utf8_code_point(piece);
    if (is_control_character(c) && !keep(c)) {
      out += escape(c);
    } else {
      out += piece;
    }
    at += length;
  }
  return out;
}

}  // namespace

std::string printable_line(std::string_view text) {
  return replaced(
      text, [](char32_t) { return false; }, escaped);
}

std::string printable(std::string_view text) {
  const auto keep = [](char32_t c) {
    return c == '\n' || c == '\t' || c == joiner || c == non_joiner;
  };
  return replaced(text, keep, escaped);
}

std::string printable_message(std::string_view text) {
  constexpr std::string_view line_start = "\n  ";
  std::string out;
  for (;;) {
    const std::size_t end = text.find(line_start);
    out += printable_line(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += line_start;
    text.remove_prefix(end + line_start.size());
  }
}

std::string printable_json(std::string_view json) {
  return replaced(
      json, [](char32_t c) { return c == '\n'; }, escaped_json);
}

}  // namespace fewbit::cli
