// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace fewbit {

// Whether a file name taken from a file or user names something below the folder it is joined to:
// not empty, not absolute, no ".." part, no zero byte.
bool stays_below(std::string_view name);

}  // namespace fewbit
