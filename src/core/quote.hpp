// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace fewbit {

// Text of a file or user for a message: in double quotes, on one line, printable and valid UTF-8
// whatever the input (other bytes as \xNN), shortened to about max_bytes with its length stated.
std::string quote(std::string_view text, std::size_t max_bytes = 120);

}  // namespace fewbit
