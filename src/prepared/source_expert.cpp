// SPDX-License-Identifier: Apache-2.0
#include "prepared/source_expert.hpp"

#include <utility>

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

void release_source_expert(const PlannedLayer& layer, const Checkpoint& source,
                           std::int64_t expert) {
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
      source.release(own);
    }
  }
}

}  // namespace fewbit
