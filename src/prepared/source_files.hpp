// SPDX-License-Identifier: Apache-2.0
// The files that a prepared model is made from, and what tells that one has changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "fewbit/checkpoint.hpp"

namespace fewbit {

struct SourceFile {
  std::filesystem::path path;
  std::string name;
  bool weights = false;  // a shard; else a side file, which is copied
  std::uint64_t bytes = 0;
  std::int64_t modified = 0;  // nanoseconds since 1970
  std::string hash;           // of a shard's header, or of the whole side file
};

// Shards first, in order, then side files. Errors: io, not_found, corrupt.
Result<std::vector<SourceFile>> source_files(const Checkpoint& checkpoint);
// Error inconsistent: a file has another size or time of change than it had, both named.
Result<void> check_unchanged(const std::vector<SourceFile>& files);
// Over names, sizes and hashes.
std::string source_hash(const std::vector<SourceFile>& files);

}  // namespace fewbit
