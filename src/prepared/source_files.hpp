// SPDX-License-Identifier: Apache-2.0
// The files that a prepared model is made from, and what tells that one has changed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "fewbit/checkpoint.hpp"

namespace fewbit {

struct SourceFile {
  std::filesystem::path path;
  std::string name;
  bool weights = false;  // a shard; else a file beside the weights, which is copied
  std::uint64_t bytes = 0;
  std::int64_t modified = 0;  // content, in nanoseconds since 1970
  std::int64_t changed = 0;   // content or status: no call sets it back
  std::string hash;           // of a shard's header, or of the whole file
};

// The facts that must stay as they are: "bytes", "modified at", "changed at", and "hash of the
// header" or "hash".
std::vector<std::pair<std::string, std::string>> source_facts(const SourceFile& file);

// Shards first, in order, then what is_kept_file of the files beside them, and those named in
// `also`: models of before hold more. Errors: io, not_found, corrupt; invalid_argument for a name
// that is no UTF-8, which no manifest can hold.
Result<std::vector<SourceFile>> source_files(const Checkpoint& checkpoint,
                                             const std::vector<std::string>& also = {});
// Error inconsistent: a file has another size or another time than it had, both named. A file whose
// content was changed and its time of modification set back has another time of change.
Result<void> check_unchanged(const std::vector<SourceFile>& files);
// Over names, sizes and hashes.
std::string source_hash(const std::vector<SourceFile>& files);

}  // namespace fewbit
