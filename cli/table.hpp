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
  void add(std::vector<std::string> cells);
  // Two spaces between columns, `indent` before each line, no trailing blanks.
  std::string text(int indent = 2) const;

 private:
  std::vector<Align> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace fewbit::cli
