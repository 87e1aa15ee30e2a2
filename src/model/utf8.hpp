// SPDX-License-Identifier: Apache-2.0
// UTF-8 as the tokenizer needs it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fewbit {

constexpr char32_t replacement_character = 0xFFFD;

// One step over text: how many bytes were read, and the code point (U+FFFD for an ill-formed
// sequence, whose length is then its maximal subpart: Unicode 15, section 3.9, table 3-7).
struct Utf8Step {
  std::size_t bytes = 1;
  char32_t code_point = replacement_character;
  bool valid = false;
};
// text must not be empty.
Utf8Step utf8_step(std::string_view text);

// code_point: a Unicode scalar value.
void append_utf8(char32_t code_point, std::string& out);

// Unicode White_Space.
bool is_white_space(char32_t code_point);

}  // namespace fewbit
