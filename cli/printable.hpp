// SPDX-License-Identifier: Apache-2.0
// Text of files that nobody vouches for, on its way to a terminal.
#pragma once

#include <string>
#include <string_view>

namespace fewbit::cli {

// Control characters (C0 without line ends, DEL, C1) and bytes that are not UTF-8 as \xNN.
std::string printable(std::string_view text);
// The same with line ends and tabs too: for a name in a row.
std::string printable_line(std::string_view text);

}  // namespace fewbit::cli
