// SPDX-License-Identifier: Apache-2.0
// Whether words of 3, 5, 6 or 7 bits hold a stream of bits or whole codes (whole_words.hpp): often
// both take as many words.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "scheme/reader.hpp"

namespace fewbit {

// The forms that words may have.
struct WordForms {
  bool stream = true;
  bool whole = true;
  // No word has a bit set behind the codes that it could hold whole (looked at where a stream
  // fits).
  bool gaps = true;
};

// Lines of 32-bit words, each of `count` codes: word i of line l lies at
// first + (l / each) * block + (l % each) * line + i * step.
struct WordLines {
  std::span<const std::byte> bytes;
  std::int64_t lines = 0;
  std::int64_t words = 0;  // of a line
  std::int64_t count = 0;  // codes of a line
  std::int64_t each = 1;
  std::int64_t block = 0;
  std::int64_t line = 0;
  std::int64_t step = 1;
};
// By the number of words, and by bits that no code has: those are 0.
WordForms forms_of(const WordLines& lines, int bits);

// Of a module's words, in 1 to 8 bits; all of a form that takes other places than the other one.
struct ModuleForms {
  WordForms codes;
  WordForms zeros;  // packed zero points; without any both forms fit

  WordForms both() const {
    return {codes.stream && zeros.stream, codes.whole && zeros.whole, codes.gaps};
  }
};
ModuleForms word_forms(const Checkpoint& checkpoint, const Module& module);
// Whether words of a readable module hold whole codes: as they themselves tell, else they are a
// stream.
bool holds_whole_codes(const Checkpoint& checkpoint, const Module& module);

// Whether this version of compressed-tensors ("0.12.2") packs whole codes; empty when the text does
// not tell, as that of a build between releases.
std::optional<bool> packs_whole_codes(std::string_view version);

// Sets Scheme::whole_words of claimed modules: by their own codes and zero points, by other
// modules, by the version. Refuses a module where these contradict each other or nothing tells, and
// adds a finding where the version says otherwise.
void check_word_forms(Inventory& inventory, std::string_view version, const std::string& where);

}  // namespace fewbit
