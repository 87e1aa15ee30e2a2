// SPDX-License-Identifier: Apache-2.0
#include "prepared/plan_rest.hpp"

#include <limits>
#include <utility>

#include "checkpoint/gguf_source.hpp"

namespace fewbit {
namespace {

Result<ShardPlan> plan_gguf_rest(const GgufMetadata& metadata,
                                 const std::vector<const TensorInfo*>& kept) {
  GgufWriterOptions options;
  options.alignment = gguf_alignment_of(metadata);
  std::vector<GgufTensorSpec> specs;
  specs.reserve(kept.size());
  for (const TensorInfo* info : kept) {
    FEWBIT_TRY(GgufTensorSpec spec, gguf_spec_of(*info));
    specs.push_back(std::move(spec));
  }
  FEWBIT_TRY(GgufPlan plan, plan_gguf("model.gguf", gguf_pairs_of(metadata), specs, options));
  ShardPlan rest;
  rest.tensors = std::move(plan.tensors);
  PlannedPart& part = plan.parts.front();
  rest.shards.push_back({.file = std::move(part.file),
                         .header = std::move(part.header),
                         .tensors = {},
                         .file_bytes = part.file_bytes});
  return rest;
}

}  // namespace

Result<ShardPlan> plan_rest(const Checkpoint& source, const std::vector<const TensorInfo*>& kept) {
  if (const GgufMetadata* metadata = source.gguf_metadata()) {
    return plan_gguf_rest(*metadata, kept);
  }
  std::vector<TensorSpec> specs;
  specs.reserve(kept.size());
  for (const TensorInfo* info : kept) {
    specs.push_back({.name = info->name, .dtype = info->dtype, .shape = info->shape});
  }
  WriterOptions options;
  options.max_shard_bytes = std::numeric_limits<std::uint64_t>::max();
  return plan_shards(std::move(specs), options);
}

}  // namespace fewbit
