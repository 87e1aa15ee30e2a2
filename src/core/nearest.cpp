// SPDX-License-Identifier: Apache-2.0
#include "core/nearest.hpp"

#include <algorithm>
#include <array>
#include <numeric>

#include "core/ascii.hpp"

namespace fewbit {
namespace {

// The time that a word takes grows with its square.
constexpr std::size_t longest_word = 128;

std::string bare(std::string_view word) {
  const std::size_t begin = word.find_first_not_of('-');
  return begin == std::string_view::npos ? "" : lower_ascii(word.substr(begin));
}

void drop_common_ends(std::string_view& a, std::string_view& b) {
  while (!a.empty() && !b.empty() && a.front() == b.front()) {
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  while (!a.empty() && !b.empty() && a.back() == b.back()) {
    a.remove_suffix(1);
    b.remove_suffix(1);
  }
}

// Characters to insert, delete or replace, and neighbours to exchange; `limit` when not fewer.
std::size_t distance(std::string_view a, std::string_view b, std::size_t limit) {
  drop_common_ends(a, b);
  if (std::max(a.size(), b.size()) - std::min(a.size(), b.size()) >= limit) return limit;
  using Row = std::vector<std::size_t>;
  std::array<Row, 3> rows = {Row(b.size() + 1), Row(b.size() + 1), Row(b.size() + 1)};
  std::iota(rows[0].begin(), rows[0].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    const Row& before = rows[(i - 1) % 3];
    Row& row = rows[i % 3];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = before[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({before[j] + 1, row[j - 1] + 1, replaced});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[j] = std::min(row[j], rows[(i - 2) % 3][j - 2] + 1);
    }
  }
  return std::min(rows[a.size() % 3].back(), limit);
}

}  // namespace

std::vector<std::string> nearest_names(std::string_view word, std::span<const std::string> names,
                                       std::size_t most) {
  const std::string asked = bare(word);
  std::vector<std::string> found;
  if (asked.empty() || asked.size() > longest_word) return found;
  std::size_t least = std::max<std::size_t>(1, asked.size() / 3);
  for (const std::string& name : names) {
    const std::string known = bare(name);
    const std::size_t differs = known.starts_with(asked) ? 0 : distance(asked, known, least + 1);
    if (differs > least || (differs > 0 && differs >= known.size())) continue;
    if (differs < least) found.clear();
    least = differs;
    if (found.size() < most) found.push_back(name);
  }
  return found;
}

std::string nearest(std::string_view word, std::span<const std::string> names) {
  const std::vector<std::string> found = nearest_names(word, names, 1);
  return found.empty() ? "" : found.front();
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names,
                         std::size_t most) {
  const std::vector<std::string> found = nearest_names(word, names, most);
  if (found.empty()) return "";
  std::string text = "; did you mean ";
  for (std::size_t i = 0; i < found.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == found.size() ? " or " : ", ") + found[i];
  }
  return text + "?";
}

}  // namespace fewbit
