// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "fewbit/result.hpp"

namespace fewbit {

// What a file is when it is not of the kind expected but one people often have in its place: "a
// GGUF file", "a Git LFS pointer, the data was never downloaded" …; empty when it is none of these.
std::string_view foreign_content(std::span<const std::byte> file);

// Error corrupt that names what the file is in place of JSON text.
Result<void> expect_json(std::span<const std::byte> file, const std::string& where);

// The file that stands in a Git repository for one in Git LFS.
bool is_lfs_pointer(std::span<const std::byte> file);

}  // namespace fewbit
