// SPDX-License-Identifier: Apache-2.0
#include "core/quote.hpp"

#include <fmt/format.h>

#include "core/control_text.hpp"
#include "core/utf8.hpp"

namespace fewbit {

std::string quote(std::string_view text, std::size_t max_bytes) {
  std::string out = "\"";
  std::size_t at = 0;
  while (at < text.size() && at < max_bytes) {
    const std::size_t length = utf8_sequence_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", byte);
      ++at;
      continue;
    }
    const char32_t c = utf8_code_point(text.substr(at, length));
    if (is_control_character(c)) {
      out += c < 0x80 ? fmt::format("\\x{:02x}", byte)
                      : fmt::format("\\u{{{:04x}}}", static_cast<std::uint32_t>(c));
      at += length;
      continue;
    }
    if (byte == '"' || byte == '\\') out += '\\';
    out += text.substr(at, length);
    at += length;
  }
  out += '"';
  if (at < text.size()) out += fmt::format("... ({} bytes)", text.size());
  return out;
}

}  // namespace fewbit
