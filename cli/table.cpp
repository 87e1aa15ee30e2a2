// SPDX-License-Identifier: Apache-2.0
#include "table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "printable.hpp"
#include "terminal.hpp"

namespace fewbit::cli {

namespace {

// All rows are as wide as the longest cell: one name of megabytes must not make each of them so.
constexpr std::size_t most_cell_bytes = 1000;

std::string shortened(const std::string& cell) {
  if (cell.size() <= most_cell_bytes) return printable_line(cell);
  std::size_t end = most_cell_bytes;
  while (end > 0 && (static_cast<unsigned char>(cell[end]) & 0xC0U) == 0x80U) --end;
  return printable_line(std::string_view(cell).substr(0, end)) +
         fmt::format("... ({} bytes)", cell.size());
}

}  // namespace

void Table::add(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  for (std::string& cell : cells) cell = shortened(cell);
  rows_.push_back(std::move(cells));
}

namespace {

// Where to end a line of at most `width` bytes: behind a blank, else anywhere but inside a
// character.
std::size_t line_end(std::string_view text, std::size_t width) {
  if (text.size() <= width) return text.size();
  const std::size_t blank = text.rfind(' ', width);
  if (blank != std::string_view::npos && blank > 0) return blank;
  while (width > 1 && (static_cast<unsigned char>(text[width]) & 0xC0U) == 0x80U) --width;
  return width;
}

std::size_t longest_word(std::string_view text) {
  std::size_t longest = 0;
  for (std::size_t end = text.find(' '); end != std::string_view::npos; end = text.find(' ')) {
    longest = std::max(longest, end);
    text.remove_prefix(end + 1);
  }
  return std::max(longest, text.size());
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  do {
    const std::size_t end = line_end(text, width);
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    if (text.starts_with(' ')) text.remove_prefix(1);
  } while (!text.empty());
  return lines;
}

}  // namespace

std::string Table::text(int indent) const { return text(indent, output_columns()); }

std::string Table::text(int indent, int line_columns) const {
  const std::vector<std::size_t> width = widths(indent, line_columns);
  std::string out;
  for (const auto& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    std::size_t lines = 1;
    for (std::size_t c = 0; c < row.size(); ++c) {
      cells.push_back(wrapped(row[c], width[c]));
      lines = std::max(lines, cells.back().size());
    }
    for (std::size_t i = 0; i < lines; ++i) {
      std::string line(static_cast<std::size_t>(indent), ' ');
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::string cell = i < cells[c].size() ? cells[c][i] : "";
        if (c > 0) line += "  ";
        line += columns_[c] == Align::left ? fmt::format("{:<{}}", cell, width[c])
                                           : fmt::format("{:>{}}", cell, width[c]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
  }
  return out;
}

std::vector<std::size_t> Table::widths(int indent, int line_columns) const {
  std::vector<std::size_t> width(columns_.size(), 1);
  std::vector<std::size_t> words(columns_.size(), 1);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      width[c] = std::max(width[c], row[c].size());
      words[c] = std::max(words[c], longest_word(row[c]));
    }
  }
  if (line_columns <= 0) return width;
  const auto most = static_cast<std::size_t>(line_columns);
  std::size_t all = static_cast<std::size_t>(indent) + 2 * (width.size() - 1);
  for (const std::size_t one : width) all += one;
  // Between words, the widest first.
  while (all > most) {
    std::size_t widest = width.size();
    for (std::size_t c = 0; c < width.size(); ++c) {
      if (columns_[c] == Align::right || width[c] <= words[c]) continue;
      if (widest == width.size() || width[c] > width[widest]) widest = c;
    }
    if (widest == width.size()) break;
    --width[widest];
    --all;
  }
  // Else inside the words of the last one.
  constexpr std::size_t least = 16;
  for (std::size_t c = width.size(); c-- > 0 && all > most;) {
    if (columns_[c] == Align::right || width[c] <= least) continue;
    width[c] = std::max(least, width[c] - std::min(width[c], all - most));
    break;
  }
  return width;
}

}  // namespace fewbit::cli
