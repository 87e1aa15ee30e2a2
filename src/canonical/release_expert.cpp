// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "canonical/layer_experts.hpp"

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

}  // namespace

void LayerExperts::release(const Checkpoint& checkpoint, std::int64_t expert) const {
  constexpr std::uint64_t page = 4096;
  std::vector<TensorInfo> shares = shares_of(*this, checkpoint, expert);
  std::ranges::sort(shares, {},
                    [](const TensorInfo& info) { return std::pair(info.shard, info.file_offset); });
  // Neighbours at once: the pages that they share go too.
  for (std::size_t i = 0; i < shares.size();) {
    TensorInfo run = shares[i];
    for (++i; i < shares.size() && shares[i].shard == run.shard; ++i) {
      if (shares[i].file_offset > run.file_offset + run.bytes + page) break;
      run.bytes = shares[i].file_offset + shares[i].bytes - run.file_offset;
    }
    checkpoint.release(run);
  }
}

}  // namespace fewbit
