// SPDX-License-Identifier: Apache-2.0
// Unfinished outputs, <target>.partial.<process>, of processes that could not remove them.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/file_descriptor.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// The temporary folder of this process for a target.
std::filesystem::path partial_folder(const std::filesystem::path& target);

// Marks a folder as in use for as long as the descriptor lives; -1 where the file system can't.
FileDescriptor lock_folder(const std::filesystem::path& folder);

// A folder that a writer of fewbit made and has not completed holds a file of this name; no other
// folder is ever removed.
inline constexpr const char* unfinished_name = ".fewbit-unfinished";
Result<void> mark_unfinished(const std::filesystem::path& folder);
bool is_unfinished(const std::filesystem::path& folder);
// Before the folder gets its final name.
Result<void> unmark_unfinished(const std::filesystem::path& folder);

// Removes the unfinished outputs of `target` that nobody works on any more, and returns their
// names: marked as such, the process is gone, and no other machine or container holds the lock.
// Others stay.
std::vector<std::filesystem::path> remove_leftovers(const std::filesystem::path& target);

// Unfinished GGUF files of a target X.gguf and its parts, of processes that are gone; they stay.
std::vector<std::filesystem::path> leftover_files(const std::filesystem::path& target);

}  // namespace fewbit
