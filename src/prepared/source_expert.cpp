// SPDX-License-Identifier: Apache-2.0
#include "prepared/source_expert.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "canonical/gguf_exact.hpp"

namespace fewbit {

Result<ExpertWeights> read_source_expert(const PlannedLayer& layer, const Checkpoint& source,
                                         std::int64_t expert, const std::string& where) {
  FEWBIT_TRY(ExpertWeights stored, layer.experts.read(source, expert));
  if (layer.zero_biases) drop_biases(stored);
  auto exact = gguf_exact(std::move(stored));
  if (!exact) return Error{exact.error().code, exact.error().what, where};
  return exact;
}

namespace {

// What the expert has of its tensors.
std::vector<TensorInfo> shares_of(const PlannedLayer& layer, const Checkpoint& source,
                                  std::int64_t expert) {
  std::vector<TensorInfo> shares;
  const LayerExperts::Modules& of = layer.experts.modules(expert);
  for (const Module* module : {of.gate, of.up, of.down, of.gate_up}) {
    if (module == nullptr) continue;
    for (const Module::Part& part : module->parts) {
      const TensorInfo* info = source.find(part.tensor);
      if (info == nullptr) continue;
      TensorInfo own = *info;
      if (layer.experts.fused()) {
        own.bytes /= static_cast<std::uint64_t>(layer.experts.count());
        own.file_offset += static_cast<std::uint64_t>(expert) * own.bytes;
      }
      shares.push_back(std::move(own));
    }
  }
  return shares;
}

}  // namespace

void release_source_expert(const PlannedLayer& layer, const Checkpoint& source,
                           std::int64_t expert) {
  constexpr std::uint64_t page = 4096;
  std::vector<TensorInfo> shares = shares_of(layer, source, expert);
  std::ranges::sort(shares, {},
                    [](const TensorInfo& info) { return std::pair(info.shard, info.file_offset); });
  // Neighbours at once: the pages that they share go too.
  for (std::size_t i = 0; i < shares.size();) {
    TensorInfo run = shares[i];
    for (++i; i < shares.size() && shares[i].shard == run.shard; ++i) {
      if (shares[i].file_offset > run.file_offset + run.bytes + page) break;
      run.bytes = shares[i].file_offset + shares[i].bytes - run.file_offset;
    }
    source.release(run);
  }
}

}  // namespace fewbit
