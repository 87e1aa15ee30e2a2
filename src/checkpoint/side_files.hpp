// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "fewbit/result.hpp"

namespace fewbit {

// What stands beside the weights in a checkpoint's folder, sorted: configs, tokenizer, licence,
// text. Not: weights of any format and their indices, hidden files, files above 64 MiB.
// Error io: the folder can't be listed.
Result<std::vector<std::filesystem::path>> side_files(const std::filesystem::path& folder);

// The same for a copy that needs what `is_needed` says by name. Errors for such a name, which is
// else left out: invalid_argument (no regular file; a folder without an ending in its name is none
// of these files), not_found (a link to nothing), limit (above 64 MiB).
Result<std::vector<std::filesystem::path>> side_files_with(const std::filesystem::path& folder,
                                                           bool (*is_needed)(std::string_view));

}  // namespace fewbit
