// SPDX-License-Identifier: Apache-2.0
// Unicode normalization form C (Unicode Standard Annex 15).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace fewbit {

// text: valid UTF-8. O(n log n) whatever the text.
std::string normalize_nfc(std::string_view text);

// Tables, in order of their first member.
struct Decomposition {
  char32_t code;
  char32_t first;
  char32_t second;  // 0: none
};
struct CombiningRange {
  char32_t first;
  std::uint16_t count;
  std::uint8_t combining_class;
};
extern const std::span<const Decomposition> unicode_nfc_compositions;
extern const std::span<const Decomposition> unicode_nfc_exclusions;
extern const std::span<const CombiningRange> unicode_nfc_classes;

}  // namespace fewbit
