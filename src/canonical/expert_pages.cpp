// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "canonical/layer_experts.hpp"
#include "checkpoint/mapped_file.hpp"

namespace fewbit {
namespace {

// What the expert has of its tensors.
std::vector<TensorInfo> shares_of(const LayerExperts& layer, const Checkpoint& source,
                                  std::int64_t expert) {
  std::vector<TensorInfo> shares;
  const LayerExperts::Modules& of = layer.modules(expert);
  for (const Module* module : {of.gate, of.up, of.down, of.gate_up}) {
    if (module == nullptr) continue;
    for (const Module::Part& part : module->parts) {
      const TensorInfo* info = source.find(part.tensor);
      if (info == nullptr) continue;
      TensorInfo own = *info;
      if (layer.fused()) {
        own.bytes /= static_cast<std::uint64_t>(layer.count());
        own.file_offset += static_cast<std::uint64_t>(expert) * own.bytes;
      }
      shares.push_back(std::move(own));
    }
  }
  return shares;
}

// Neighbours at once: they share pages.
std::vector<TensorInfo> runs_of(const LayerExperts& layer, const Checkpoint& source,
                                std::int64_t expert) {
  constexpr std::uint64_t page = 4096;
  std::vector<TensorInfo> shares = shares_of(layer, source, expert);
  std::ranges::sort(shares, {},
                    [](const TensorInfo& info) { return std::pair(info.shard, info.file_offset); });
  std::vector<TensorInfo> runs;
  for (TensorInfo& share : shares) {
    if (!runs.empty() && share.shard == runs.back().shard) {
      TensorInfo& run = runs.back();
      if (share.file_offset <= run.file_offset + run.bytes + page) {
        run.bytes = share.file_offset + share.bytes - run.file_offset;
        continue;
      }
    }
    runs.push_back(std::move(share));
  }
  return runs;
}

bool holds(std::span<const std::byte> bytes, std::span<const std::byte> part) {
  return std::less_equal<>()(bytes.data(), part.data()) &&
         std::less<>()(part.data(), bytes.data() + bytes.size());
}

}  // namespace

void LayerExperts::map_pages(const Checkpoint& checkpoint, std::int64_t expert) const {
  for (const TensorInfo& run : runs_of(*this, checkpoint, expert)) {
    MappedFile::map_pages(checkpoint.tensor(run).view.bytes);
  }
}

void LayerExperts::release(const Checkpoint& checkpoint, std::int64_t expert) const {
  for (const TensorInfo& run : runs_of(*this, checkpoint, expert)) checkpoint.release(run);
}

void LayerExperts::release_copied(const Checkpoint& checkpoint, std::int64_t expert,
                                  const ExpertWeights& weights) const {
  const std::vector<TensorInfo> runs = runs_of(*this, checkpoint, expert);
  const auto is_mapped = [&](const QuantizedTensor& matrix) {
    return std::ranges::any_of(runs, [&](const TensorInfo& run) {
      const auto bytes = checkpoint.tensor(run).view.bytes;
      return holds(bytes, matrix.codes.view.bytes);
    });
  };
  const bool gate = weights.gate && is_mapped(*weights.gate);
  if (gate || is_mapped(weights.up) || is_mapped(weights.down)) return;
  for (const TensorInfo& run : runs) checkpoint.release(run);
}

}  // namespace fewbit
