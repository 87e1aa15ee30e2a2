// SPDX-License-Identifier: Apache-2.0
#include "nearest.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/ascii.hpp"

namespace fewbit::cli {
namespace {

constexpr std::size_t longest_word = 64;

std::string bare(std::string_view word) {
  const std::size_t begin = word.find_first_not_of('-');
  return begin == std::string_view::npos ? "" : lower_ascii(word.substr(begin));
}

// Characters to insert, delete or replace.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> names) {
  const std::string asked = bare(word);
  if (asked.empty() || asked.size() > longest_word) return "";
  std::string best;
  std::size_t least = std::max<std::size_t>(1, asked.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::string known = bare(name);
    if (known.starts_with(asked)) return name;
    const std::size_t differs = distance(asked, known);
    if (differs >= least || differs >= known.size()) continue;
    least = differs;
    best = name;
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> names) {
  const std::string name = nearest(word, names);
  return name.empty() ? "" : "; did you mean " + name + "?";
}

}  // namespace fewbit::cli
