// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "checkpoint/shard_plan.hpp"

namespace fewbit {

// One file for the tensors that stay as they are, in the format of the source: model.safetensors,
// or model.gguf with all key-value pairs. Errors: as plan_shards and plan_gguf.
Result<ShardPlan> plan_rest(const Checkpoint& source, const std::vector<const TensorInfo*>& kept);

}  // namespace fewbit
