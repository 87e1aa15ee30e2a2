// SPDX-License-Identifier: Apache-2.0
// Where each tensor of a checkpoint to be written goes.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/json.hpp"
#include "fewbit/checkpoint.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

struct PlannedShard {
  std::string file;                  // "model-00002-of-00003.safetensors"
  std::string header;                // length, JSON and padding: the first bytes of the file
  std::vector<std::size_t> tensors;  // indices into ShardPlan::tensors, in the order of the data
  std::uint64_t file_bytes = 0;
};

struct ShardPlan {
  std::vector<TensorInfo>
      tensors;  // in the order they were declared; file_offset and shard are set
  std::vector<PlannedShard> shards;
  std::uint64_t total_bytes = 0;  // of all tensors
};

// Fills shards in the order the tensors were declared, a new one when the next tensor would pass
// max_shard_bytes. Inside a shard tensors are sorted as the reference writer does: by descending
// rank of the type, then by name, so that with the header padded to 8 bytes every tensor is
// aligned.
//
// Errors: invalid_argument (empty, duplicate or reserved name, name that is not UTF-8), unsupported
// (type without a name in the format), limit, corrupt (bits that do not fill bytes).
Result<ShardPlan> plan_shards(std::vector<TensorSpec> specs, const WriterOptions& options);

// Content of model.safetensors.index.json.
Json index_of(const ShardPlan& plan);

}  // namespace fewbit
