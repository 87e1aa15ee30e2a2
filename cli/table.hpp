// SPDX-License-Identifier: Apache-2.0
// Columns of text, aligned by their longest cell.
#pragma once

#include <string>
#include <vector>

namespace fewbit::cli {

enum class Align { left, right };

class Table {
 public:
  explicit Table(std::vector<Align> columns) : columns_(std::move(columns)) {}
  // Cells of more than 1000 bytes are shortened, with their length.
  void add(std::vector<std::string> cells);
  // Two spaces between columns, `indent` before each line, no trailing blanks. Where stdout is a
  // terminal that is too narrow, columns of text are wrapped, the widest first.
  std::string text(int indent = 2) const;
  // The same for lines of so many columns; 0: of any length.
  std::string text(int indent, int line_columns) const;

 private:
  // Of each column, so that lines fit.
  std::vector<std::size_t> widths(int indent, int line_columns) const;

  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fewbit::cli
