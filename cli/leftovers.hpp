// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace fewbit::cli {

// Removes the folders that killed processes left beside an output, and names each on stderr; files
// are named alone.
void clean_leftovers(const std::string& output);

}  // namespace fewbit::cli
