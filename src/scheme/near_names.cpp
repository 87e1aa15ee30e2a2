// SPDX-License-Identifier: Apache-2.0
#include "scheme/near_names.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

constexpr std::size_t most_words = 4096;
constexpr std::size_t shortest = 4;  // shorter words differ in a letter by nature

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The runs of letters, digits and underscores of an entry.
std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && is_word(text[end])) ++end;
    if (end > at) out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// Where two words differ: what is left of each between their common beginning and end.
struct Difference {
  std::string_view a;
  std::string_view b;
  std::size_t at = 0;
};

Difference difference_of(std::string_view a, std::string_view b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  std::size_t head = 0;
  while (head < shorter && a[head] == b[head]) ++head;
  std::size_t tail = 0;
  while (tail < shorter - head && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  return {a.substr(head, a.size() - head - tail), b.substr(head, b.size() - head - tail), head};
}

// The part between underscores around a position.
std::size_t part_size(std::string_view word, std::size_t at) {
  const std::size_t begin = at == 0 ? 0 : word.rfind('_', at - 1) + 1;  // npos + 1 is 0
  const std::size_t end = std::min(word.find('_', at), word.size());
  return end > begin ? end - begin : 0;
}

std::string without_underscores(std::string_view word) {
  std::string out(word);
  std::erase(out, '_');
  return out;
}

bool is_slip(std::string_view written, std::string_view meant) {
  if (written == meant) return false;
  if (without_underscores(written) == without_underscores(meant)) return true;
  const auto [a, b, at] = difference_of(written, meant);
  const bool swapped = a.size() == 2 && b.size() == 2 && a[0] == b[1] && a[1] == b[0];
  if (!swapped && (a.size() > 1 || b.size() > 1)) return false;
  const std::string both = std::string(a) + std::string(b);
  if (std::any_of(both.begin(), both.end(), [](char c) { return is_digit(c) || c == '_'; })) {
    return false;
  }
  const bool plural = both == "s" && at == std::min(written.size(), meant.size());
  return !plural && std::max(part_size(written, at), part_size(meant, at)) >= shortest;
}

}  // namespace

NearNames::NearNames(std::span<const std::string_view> modules) {
  for (const std::string_view module : modules) {
    if (words_.size() >= most_words) break;
    for (const std::string_view part : split_dots(module)) {
      if (!words_.contains(part)) words_.emplace(part);
    }
  }
}

bool NearNames::knows(std::string_view word) const {
  if (words_.contains(word)) return true;
  return std::any_of(words_.begin(), words_.end(), [&](const std::string& known) {
    return known.find(word) != std::string::npos;
  });
}

std::vector<std::string> NearNames::corrections(std::string_view entry) const {
  std::optional<std::string_view> unknown;
  for (const std::string_view word : words_of(entry)) {
    if (word.size() < shortest || word == "model" || word == "language_model" || knows(word)) {
      continue;
    }
    if (unknown && *unknown != word) return {};
    unknown = word;
  }
  if (!unknown) return {};
  std::vector<std::string> out;
  const auto at = static_cast<std::size_t>(unknown->data() - entry.data());
  for (const std::string& word : words_) {
    if (!is_slip(*unknown, word)) continue;
    std::string& text = out.emplace_back(entry);
    text.replace(at, unknown->size(), word);
  }
  return out;
}

bool is_behind_last_layer(std::string_view entry, std::int64_t layers) {
  for (std::size_t at = 1; at < entry.size(); ++at) {
    if (!is_digit(entry[at]) || entry[at - 1] != '.') continue;
    std::size_t end = at;
    while (end < entry.size() && is_digit(entry[end])) ++end;
    std::string_view before = entry.substr(0, at - 1);
    if (before.ends_with('\\')) before.remove_suffix(1);
    const bool named = !before.empty() && is_word(before.back());
    const auto number = name_number(entry.substr(at, end - at));
    if (number && *number >= layers && (!named || before.ends_with("layers"))) return true;
    at = end;
  }
  return false;
}

}  // namespace fewbit
