// SPDX-License-Identifier: Apache-2.0
// What a path names, where only a regular file will do: devices and pipes have no size or no end.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "fewbit/result.hpp"

namespace fewbit {

// Error invalid_argument: "expected a regular file, found a device".
Result<void> expect_regular(mode_t mode, const std::filesystem::path& path);

// The same of what a path names now, for what is opened by name afterwards; no error where nothing
// is there: that opening says.
Result<void> expect_regular_file(const std::filesystem::path& path);

}  // namespace fewbit
