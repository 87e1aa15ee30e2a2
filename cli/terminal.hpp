// SPDX-License-Identifier: Apache-2.0
// How wide the reader's terminal is, and text that fits it.
#pragma once

#include <string>
#include <string_view>

namespace fewbit::cli {

// Of stdout: COLUMNS where that is a number, else what the terminal says; 0 when stdout is no
// terminal, whose lines have any length.
int output_columns();
// The same of stderr.
int error_columns();

// Lines of more than `columns` characters end at a blank and go on below where their last column
// of text begins, else a little inside. A longer word stays whole.
std::string wrapped_page(std::string_view text, int columns);

}  // namespace fewbit::cli
