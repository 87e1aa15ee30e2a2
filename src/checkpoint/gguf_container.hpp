// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/container.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// "<prefix>-00002-of-00005.gguf": number and count start at 1.
struct GgufSplitName {
  std::string prefix;
  std::uint64_t number = 1;
  std::uint64_t count = 1;
};
// Empty for any other name, and for numbers that don't fit each other.
std::optional<GgufSplitName> parse_gguf_split_name(const std::string& file_name);
std::string gguf_split_file_name(const GgufSplitName& name);

// Opens the file, or all parts when its name is that of a split file.
// Errors: not_found (missing parts, by name), inconsistent (split.no, split.count or
// split.tensors.count against the files), all of parse_gguf.
Result<Container> open_gguf(const std::filesystem::path& path);

// The one model among `files` (all *.gguf of a folder): the only file, or the first part of the
// only split set, beside projectors of images (mmproj). Error not_found lists them otherwise, and
// how many of each kind there are.
Result<std::filesystem::path> choose_gguf(const std::vector<std::filesystem::path>& files,
                                          const std::filesystem::path& directory);

// Why the file can't be read; empty when its header can.
std::string gguf_problem(const std::filesystem::path& path);

}  // namespace fewbit
