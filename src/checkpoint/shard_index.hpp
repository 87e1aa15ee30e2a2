// SPDX-License-Identifier: Apache-2.0
// model.safetensors.index.json: which shard holds which tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "fewbit/checkpoint.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

struct ShardIndex {
  struct Entry {
    std::string tensor;
    std::int32_t shard = 0;  // index into files
  };
  std::vector<std::string> files;  // relative to the index's folder, sorted
  std::vector<Entry> entries;      // sorted by tensor
  std::optional<double> total_size;
  std::vector<Finding> findings;  // of its metadata
};

// text: content of the index. Errors: corrupt (JSON, missing or empty weight_map, a file name that
// leaves the folder), limit.
Result<ShardIndex> parse_shard_index(std::string_view text, const std::string& where);

// Compares the index with what the shards hold. tensors: of all shards, sorted by name, their shard
// numbers index.files. Appends findings on tensors that the index omits (error: a loader that
// trusts the index would lose them) and on a stale total_size (warning). Errors: inconsistent,
// naming every kind of disagreement that hides a tensor the index promises.
Result<void> check_against_shards(const ShardIndex& index, std::span<const TensorInfo> tensors,
                                  const std::string& where, std::vector<Finding>& findings);

// "a, b, c and 12 more".
std::string short_list(std::span<const std::string> items);

}  // namespace fewbit
