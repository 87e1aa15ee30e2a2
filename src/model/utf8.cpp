// SPDX-License-Identifier: Apache-2.0
#include "model/utf8.hpp"

#include <cstdint>

namespace fewbit {
namespace {

// What may follow a lead byte: the number of continuation bytes and the range of the first one.
struct Lead {
  int continuations = 0;  // 0: not a lead byte of a longer sequence
  std::uint8_t first_low = 0x80;
  std::uint8_t first_high = 0xBF;
  std::uint8_t payload = 0;
};

Lead classify(std::uint8_t byte) {
  Lead lead;
  if (byte >= 0xC2 && byte <= 0xDF) {
    lead = {1, 0x80, 0xBF, static_cast<std::uint8_t>(byte & 0x1F)};
  } else if (byte >= 0xE0 && byte <= 0xEF) {
    lead = {2, 0x80, 0xBF, static_cast<std::uint8_t>(byte & 0x0F)};
    if (byte == 0xE0) lead.first_low = 0xA0;
    if (byte == 0xED) lead.first_high = 0x9F;
  } else if (byte >= 0xF0 && byte <= 0xF4) {
    lead = {3, 0x80, 0xBF, static_cast<std::uint8_t>(byte & 0x07)};
    if (byte == 0xF0) lead.first_low = 0x90;
    if (byte == 0xF4) lead.first_high = 0x8F;
  }
  return lead;
}

}  // namespace

Utf8Step utf8_step(std::string_view text) {
  const auto first = static_cast<std::uint8_t>(text[0]);
  if (first < 0x80) return {1, first, true};
  const Lead lead = classify(first);
  if (lead.continuations == 0) return {};
  char32_t code_point = lead.payload;
  for (int i = 1; i <= lead.continuations; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (at >= text.size()) return {at, replacement_character, false};
    const auto byte = static_cast<std::uint8_t>(text[at]);
    const std::uint8_t low = i == 1 ? lead.first_low : std::uint8_t{0x80};
    const std::uint8_t high = i == 1 ? lead.first_high : std::uint8_t{0xBF};
    if (byte < low || byte > high) return {at, replacement_character, false};
    code_point = (code_point << 6) | (byte & 0x3FU);
  }
  return {static_cast<std::size_t>(lead.continuations) + 1, code_point, true};
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

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.valid) {
      out.append(text.substr(at, step.bytes));
    } else {
      append_utf8(replacement_character, out);
    }
    at += step.bytes;
  }
  return out;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

}  // namespace fewbit
