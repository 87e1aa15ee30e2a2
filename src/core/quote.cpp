// SPDX-License-Identifier: Apache-2.0
#include "core/quote.hpp"

#include <fmt/format.h>

#include "core/utf8.hpp"

namespace fewbit {

std::string quote(std::string_view text, std::size_t max_bytes) {
  std::string out = "\"";
  std::size_t at = 0;
  while (at < text.size() && at < max_bytes) {
    const std::size_t length = utf8_sequence_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (length == 0 || byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
      ++at;
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
