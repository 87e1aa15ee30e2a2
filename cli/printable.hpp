// SPDX-License-Identifier: Apache-2.0
// Text of files that nobody vouches for, on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace fewbit::cli {

// A name in a row: control characters, line ends and marks of direction among them, as \xNN or
// \u{NNNN}, bytes that are not UTF-8 as \xNN.
std::string printable_line(std::string_view text);
// Running text: line ends, tabs and joiners of letters stay.
std::string printable(std::string_view text);
// An error's message: lines of its own are indented by two blanks, other line ends are a name's.
std::string printable_message(std::string_view text);
// JSON as its readers know it: the same characters as \uNNNN, which stand for themselves.
std::string printable_json(std::string_view json);

// Several lines that were made of printable text.
struct Lines {
  std::string text;
};

}  // namespace fewbit::cli
