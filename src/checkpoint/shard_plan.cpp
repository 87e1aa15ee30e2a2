// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shard_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>

#include "checkpoint/safetensors.hpp"
#include "checkpoint/safetensors_dtype.hpp"
#include "core/checked.hpp"
#include "core/quote.hpp"
#include "core/utf8.hpp"

namespace fewbit {
namespace {

constexpr std::size_t header_alignment = 8;

Result<TensorInfo> checked_info(TensorSpec spec) {
  const auto fail = [&](ErrorCode code, std::string what) {
    return Error{code, std::move(what), "tensor " + quote(spec.name)};
  };
  if (spec.name.empty()) return fail(ErrorCode::invalid_argument, "a tensor needs a name");
  if (spec.name == safetensors_metadata_key) {
    return fail(ErrorCode::invalid_argument, "the name is reserved by the format");
  }
  if (!is_utf8(spec.name)) return fail(ErrorCode::invalid_argument, "the name is not UTF-8");
  if (!safetensors_name(spec.dtype)) {
    return fail(ErrorCode::unsupported,
                fmt::format("safetensors has no type for {}; known are {}", dtype_name(spec.dtype),
                            safetensors_known_names()));
  }
  const auto bytes = tensor_bytes(spec.dtype, spec.shape);
  if (!bytes) return fail(bytes.error().code, bytes.error().what);
  TensorInfo info;
  info.name = std::move(spec.name);
  info.dtype = spec.dtype;
  info.shape = std::move(spec.shape);
  info.bytes = *bytes;
  return info;
}

Result<void> check_names(std::span<const TensorInfo> tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& info : tensors) names.push_back(info.name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin == names.end()) return {};
  return Error{ErrorCode::invalid_argument, "declared twice", "tensor " + quote(*twin)};
}

// Which shard each tensor goes to; a shard has at least one tensor.
std::vector<PlannedShard> assign_shards(std::vector<TensorInfo>& tensors,
                                        std::uint64_t max_shard_bytes) {
  std::vector<PlannedShard> shards(1);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t room = bytes < max_shard_bytes ? max_shard_bytes - bytes : 0;
    if (tensors[i].bytes > room && !shards.back().tensors.empty()) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensors[i].bytes;
    shards.back().tensors.push_back(i);
    tensors[i].shard = static_cast<std::int32_t>(shards.size() - 1);
  }
  return shards;
}

Json header_entry(const TensorInfo& info, std::uint64_t begin) {
  Json::Array shape;
  for (const std::int64_t dimension : info.shape) shape.emplace_back(dimension);
  Json entry;
  entry.append_member("dtype", Json(safetensors_name(info.dtype).value_or("")));
  entry.append_member("shape", Json(std::move(shape)));
  entry.append_member("data_offsets", Json(Json::Array{Json(begin), Json(begin + info.bytes)}));
  return entry;
}

// Sorts the shard's tensors and sets their offsets, the header and the size of the file.
Result<void> lay_out(PlannedShard& shard, std::vector<TensorInfo>& tensors,
                     const std::map<std::string, std::string>& metadata) {
  std::sort(shard.tensors.begin(), shard.tensors.end(), [&](std::size_t a, std::size_t b) {
    return std::tuple(-safetensors_rank(tensors[a].dtype), std::string_view(tensors[a].name)) <
           std::tuple(-safetensors_rank(tensors[b].dtype), std::string_view(tensors[b].name));
  });
  Json::Object members;
  if (!metadata.empty()) {
    Json::Object entries;
    for (const auto& [key, value] : metadata) entries.emplace_back(key, Json(value));
    members.emplace_back(safetensors_metadata_key, Json(std::move(entries)));
  }
  std::uint64_t offset = 0;
  for (const std::size_t i : shard.tensors) {
    members.emplace_back(tensors[i].name, header_entry(tensors[i], offset));
    tensors[i].file_offset = offset;
    offset += tensors[i].bytes;  // at most total_bytes, which did not overflow
  }
  std::string text = Json(std::move(members)).dump();
  text.resize(round_up(text.size(), header_alignment), ' ');
  if (text.size() > safetensors_max_header_bytes) {
    return Error{ErrorCode::limit,
                 fmt::format("a header of {} bytes for {} tensors, the limit is {}", text.size(),
                             shard.tensors.size(), safetensors_max_header_bytes),
                 shard.file};
  }
  for (std::size_t i = 0; i < 8; ++i) {
    shard.header += static_cast<char>(text.size() >> (8 * i) & 0xff);
  }
  shard.header += text;
  for (const std::size_t i : shard.tensors) tensors[i].file_offset += shard.header.size();
  shard.file_bytes = shard.header.size() + offset;
  return {};
}

}  // namespace

Result<ShardPlan> plan_shards(std::vector<TensorSpec> specs, const WriterOptions& options) {
  ShardPlan plan;
  plan.tensors.reserve(specs.size());
  // Below 2^63 in all, so that no offset within a file can overflow either.
  std::int64_t total = 0;
  for (TensorSpec& spec : specs) {
    FEWBIT_TRY(TensorInfo info, checked_info(std::move(spec)));
    const auto bytes = checked_cast<std::int64_t>(info.bytes);
    const auto sum = bytes ? checked_add(total, *bytes) : std::nullopt;
    if (!sum) {
      return Error{ErrorCode::limit, "the tensors have more than 2^63 - 1 bytes in all",
                   "tensor " + quote(info.name)};
    }
    total = *sum;
    plan.tensors.push_back(std::move(info));
  }
  plan.total_bytes = static_cast<std::uint64_t>(total);
  FEWBIT_TRY(check_names(plan.tensors));
  plan.shards = assign_shards(plan.tensors, options.max_shard_bytes);
  const std::size_t count = plan.shards.size();
  for (std::size_t i = 0; i < count; ++i) {
    PlannedShard& shard = plan.shards[i];
    shard.file = count == 1 ? "model.safetensors"
                            : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, count);
    FEWBIT_TRY(lay_out(shard, plan.tensors, options.metadata));
  }
  return plan;
}

Json index_of(const ShardPlan& plan) {
  std::vector<const TensorInfo*> sorted;
  sorted.reserve(plan.tensors.size());
  for (const TensorInfo& info : plan.tensors) sorted.push_back(&info);
  std::sort(sorted.begin(), sorted.end(),
            [](const auto* a, const auto* b) { return a->name < b->name; });
  Json::Object map;
  map.reserve(sorted.size());
  for (const TensorInfo* info : sorted) {
    map.emplace_back(info->name, Json(plan.shards[static_cast<std::size_t>(info->shard)].file));
  }
  Json metadata;
  metadata.set("total_size", Json(plan.total_bytes));
  Json index;
  index.set("metadata", std::move(metadata));
  index.set("weight_map", Json(std::move(map)));
  return index;
}

}  // namespace fewbit
