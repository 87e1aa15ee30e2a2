// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "fewbit/result.hpp"

namespace fewbit {

// The folder that an output is to become: "out/" is "out", a bare name lies in the current folder.
// Error invalid_argument: no name of a folder.
Result<std::filesystem::path> target_path(const std::filesystem::path& folder);

}  // namespace fewbit
