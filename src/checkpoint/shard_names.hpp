// SPDX-License-Identifier: Apache-2.0
// Numbers in the names of shards: "model-00002-of-00003.safetensors".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fewbit/checkpoint.hpp"

namespace fewbit {

struct ShardName {
  std::string prefix;        // "model-"
  std::uint64_t number = 0;  // 2
  std::uint64_t count = 0;   // 3
};
// Empty for names of another form. Numbers past 2^64 - 1 are that.
std::optional<ShardName> parse_shard_name(const std::filesystem::path& file);

// Findings `shard-number` of the files of one checkpoint: numbers outside 1 to the count (or 0 to
// the count - 1, as some writers count) and counts that differ. Info for the files behind the first
// `used`, which are no part of the checkpoint.
void check_shard_names(std::span<const std::filesystem::path> files, std::size_t used,
                       std::vector<Finding>& findings);

}  // namespace fewbit
