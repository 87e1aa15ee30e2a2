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
  std::vector<std::size_t> width(columns_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  const std::size_t wrap = wrap_column(width, indent, line_columns);
  std::string out;
  for (const auto& row : rows_) {
    std::vector<std::string> more;
    if (wrap < row.size()) more = wrapped(row[wrap], width[wrap]);
    for (std::size_t i = 0; i < std::max<std::size_t>(more.size(), 1); ++i) {
      std::string line(static_cast<std::size_t>(indent), ' ');
      for (std::size_t c = 0; c < row.size(); ++c) {
        const std::string& cell = c == wrap ? more[i] : i == 0 ? row[c] : std::string();
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

std::size_t Table::wrap_column(std::vector<std::size_t>& width, int indent,
                               int line_columns) const {
  constexpr std::size_t least = 16;
  std::size_t all = static_cast<std::size_t>(indent) + 2 * (width.size() - 1);
  for (const std::size_t one : width) all += one;
  const auto most = static_cast<std::size_t>(std::max(line_columns, 0));
  if (line_columns <= 0 || all <= most) return width.size();
  std::size_t last = width.size();
  for (std::size_t c = 0; c < width.size(); ++c) {
    if (columns_[c] == Align::left && width[c] > least) last = c;
  }
  if (last == width.size()) return last;
  const std::size_t others = all - width[last];
  width[last] = std::max(least, most > others ? most - others : 0);
  return last;
}

}  // namespace fewbit::cli
