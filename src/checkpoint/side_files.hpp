// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

#include "fewbit/result.hpp"

namespace fewbit {

// What stands beside the weights in a checkpoint's folder, sorted: configs, tokenizer, licence,
// text. Not: weights of any format and their indices, hidden files, files above 64 MiB.
// Error io: the folder can't be listed.
Result<std::vector<std::filesystem::path>> side_files(const std::filesystem::path& folder);

}  // namespace fewbit
