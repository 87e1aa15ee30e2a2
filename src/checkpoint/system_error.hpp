// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

#include "fewbit/result.hpp"

namespace fewbit {

// Error of a failed system call: "cannot open: Permission denied (errno 13)", where = path.
// not_found when the file does not exist, io otherwise.
Error system_error(std::string_view action, int error_number, const std::filesystem::path& path);

}  // namespace fewbit
