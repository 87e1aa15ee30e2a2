// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint and what their headers say, before anything is known of its scheme.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/mapped_file.hpp"
#include "fewbit/checkpoint.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

struct Container {
  std::filesystem::path directory;
  std::vector<std::filesystem::path> paths;               // one a shard
  std::vector<std::shared_ptr<const MappedFile>> shards;  // in the same order
  std::vector<TensorInfo> tensors;                        // sorted by name
  std::map<std::string, std::string> metadata;
  std::shared_ptr<const GgufMetadata> gguf;  // of GGUF files
  std::vector<Finding> findings;
  std::uint64_t total_bytes = 0;
};

// Sorts by name. Error inconsistent when two shards hold a tensor of one name.
Result<void> sort_tensors(Container& container);

// As Checkpoint::open.
Result<Container> open_container(const std::filesystem::path& path);

}  // namespace fewbit
