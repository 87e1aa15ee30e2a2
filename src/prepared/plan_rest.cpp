// SPDX-License-Identifier: Apache-2.0
#include "prepared/plan_rest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "checkpoint/gguf_plan.hpp"

namespace fewbit {
namespace {

Result<GgufType> type_of(const TensorInfo& info) {
  const GgufType* type = nullptr;
  if (info.blocks) {
    type = find_gguf_type(info.blocks->ggml_type, info.blocks->block_elements);
  } else {
    const auto types = gguf_types();
    const auto at = std::ranges::find(types, std::optional(info.dtype), &GgufType::dtype);
    if (at != types.end()) type = &*at;
  }
  if (type != nullptr && type->elements > 0) return *type;
  return Error{ErrorCode::unsupported,
               fmt::format("{} has no known blocks", stored_type_name(info)), info.name};
}

Result<ShardPlan> plan_gguf_rest(const GgufMetadata& metadata,
                                 const std::vector<const TensorInfo*>& kept) {
  GgufWriterOptions options;
  std::vector<GgufPair> pairs;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (entry.key.starts_with("split.")) continue;  // it is one file
    if (entry.key == gguf_alignment_key) {
      options.alignment = static_cast<std::uint64_t>(
          entry.value.as_int64().value_or(std::int64_t{gguf_default_alignment}));
      continue;
    }
    pairs.push_back(gguf_copy(std::string(entry.key), entry.value));
  }
  std::vector<GgufTensorSpec> specs;
  specs.reserve(kept.size());
  for (const TensorInfo* info : kept) {
    FEWBIT_TRY(const GgufType type, type_of(*info));
    specs.push_back({.name = info->name, .type = type, .shape = shape_in_elements(*info)});
  }
  FEWBIT_TRY(GgufPlan plan, plan_gguf("model.gguf", pairs, specs, options));
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
