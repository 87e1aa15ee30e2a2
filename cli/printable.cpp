// SPDX-License-Identifier: Apache-2.0
#include "printable.hpp"

#include <fmt/format.h>

#include "core/utf8.hpp"

namespace fewbit::cli {
namespace {

bool is_control(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  const bool c1 =
      sequence.size() == 2 && first == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;
  return first < 0x20 || first == 0x7F || c1;
}

std::string escape(std::string_view text, std::string_view kept) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_sequence_length(text, at);
    const std::string_view piece = text.substr(at, length == 0 ? 1 : length);
    const bool keep = length > 0 && (!is_control(piece) || kept.find(piece) != kept.npos);
    if (keep) {
      out += piece;
    } else {
      for (const char c : piece) out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
    at += piece.size();
  }
  return out;
}

}  // namespace

std::string printable(std::string_view text) { return escape(text, "\n\t"); }
std::string printable_line(std::string_view text) { return escape(text, ""); }

}  // namespace fewbit::cli
