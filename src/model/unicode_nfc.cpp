// SPDX-License-Identifier: Apache-2.0
#include "model/unicode_nfc.hpp"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "model/utf8.hpp"

namespace fewbit {
namespace {

// Text below U+0300, whose UTF-8 begins with this byte, is normalized as it is.
constexpr std::uint8_t first_lead_byte = 0xCC;

// Hangul syllables are composed by arithmetic (chapter 3.12 of the standard).
constexpr char32_t hangul_syllable = 0xAC00;
constexpr char32_t hangul_leading = 0x1100;
constexpr char32_t hangul_vowel = 0x1161;
constexpr char32_t hangul_trailing = 0x11A7;
constexpr char32_t leading_count = 19;
constexpr char32_t vowel_count = 21;
constexpr char32_t trailing_count = 28;
constexpr char32_t syllable_count = leading_count * vowel_count * trailing_count;

// Whether value lies in [first, first + count).
bool in_range(char32_t value, char32_t first, char32_t count) {
  return value >= first && value - first < count;
}

struct Combining {
  char32_t code = 0;
  std::uint8_t combining_class = 0;
};

std::uint8_t combining_class(char32_t code) {
  const auto after =
      std::upper_bound(unicode_nfc_classes.begin(), unicode_nfc_classes.end(), code,
                       [](char32_t c, const CombiningRange& range) { return c < range.first; });
  if (after == unicode_nfc_classes.begin()) return 0;
  const CombiningRange& range = *(after - 1);
  return in_range(code, range.first, range.count) ? range.combining_class : std::uint8_t{0};
}

const Decomposition* find_decomposition(std::span<const Decomposition> table, char32_t code) {
  const auto found =
      std::lower_bound(table.begin(), table.end(), code,
                       [](const Decomposition& entry, char32_t c) { return entry.code < c; });
  return found != table.end() && found->code == code ? &*found : nullptr;
}

// Appends the full canonical decomposition; the standard's mappings nest a few levels at most.
void decompose(char32_t code, std::vector<Combining>& out) {
  if (in_range(code, hangul_syllable, syllable_count)) {
    const char32_t index = code - hangul_syllable;
    out.push_back({hangul_leading + index / (vowel_count * trailing_count), 0});
    out.push_back({hangul_vowel + index / trailing_count % vowel_count, 0});
    const char32_t trailing = index % trailing_count;
    if (trailing != 0) out.push_back({hangul_trailing + trailing, 0});
    return;
  }
  const Decomposition* entry = find_decomposition(unicode_nfc_compositions, code);
  if (entry == nullptr) entry = find_decomposition(unicode_nfc_exclusions, code);
  if (entry == nullptr) {
    out.push_back({code, combining_class(code)});
    return;
  }
  decompose(entry->first, out);
  if (entry->second != 0) decompose(entry->second, out);
}

std::uint64_t pair_key(char32_t first, char32_t second) {
  return (std::uint64_t{first} << 32) | second;
}

// 0 when the two do not compose.
char32_t compose_pair(char32_t first, char32_t second) {
  if (in_range(first, hangul_leading, leading_count) &&
      in_range(second, hangul_vowel, vowel_count)) {
    return hangul_syllable +
           ((first - hangul_leading) * vowel_count + (second - hangul_vowel)) * trailing_count;
  }
  if (in_range(first, hangul_syllable, syllable_count) &&
      (first - hangul_syllable) % trailing_count == 0 &&
      in_range(second, hangul_trailing + 1, trailing_count - 1)) {
    return first + (second - hangul_trailing);
  }
  static const auto composed = [] {
    std::unordered_map<std::uint64_t, char32_t> map;
    for (const Decomposition& entry : unicode_nfc_compositions) {
      map.emplace(pair_key(entry.first, entry.second), entry.code);
    }
    return map;
  }();
  const auto found = composed.find(pair_key(first, second));
  return found == composed.end() ? 0 : found->second;
}

// Marks between two starters, by class; equal classes keep their order.
void order_marks(std::vector<Combining>& text) {
  for (auto begin = text.begin(); begin != text.end();) {
    const auto is_starter = [](const Combining& c) { return c.combining_class == 0; };
    begin = std::find_if_not(begin, text.end(), is_starter);
    const auto end = std::find_if(begin, text.end(), is_starter);
    std::stable_sort(begin, end, [](const Combining& a, const Combining& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end;
  }
}

// A mark joins the starter before it unless one of its own class or higher stands between.
std::vector<Combining> compose(const std::vector<Combining>& text) {
  std::vector<Combining> out;
  out.reserve(text.size());
  std::size_t starter = text.size();  // none yet
  std::uint8_t before = 0;            // class of the last mark kept after the starter
  for (const Combining& c : text) {
    const bool reaches = starter < out.size() && (before == 0 || before < c.combining_class);
    const char32_t composed = reaches ? compose_pair(out[starter].code, c.code) : 0;
    if (composed != 0) {
      out[starter].code = composed;
      continue;
    }
    if (c.combining_class == 0) starter = out.size();
    before = c.combining_class;
    out.push_back(c);
  }
  return out;
}

}  // namespace

std::string normalize_nfc(std::string_view text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char byte) {
    return static_cast<std::uint8_t>(byte) < first_lead_byte;
  });
  if (plain) return std::string(text);
  std::vector<Combining> decomposed;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text.substr(at));
    decompose(step.code_point, decomposed);
    at += step.bytes;
  }
  order_marks(decomposed);
  std::string out;
  out.reserve(text.size());
  for (const Combining& c : compose(decomposed)) append_utf8(c.code, out);
  return out;
}

}  // namespace fewbit
