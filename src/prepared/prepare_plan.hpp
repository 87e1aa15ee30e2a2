// SPDX-License-Identifier: Apache-2.0
// Everything that preparing a checkpoint will do, settled before a byte is written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "canonical/layer_experts.hpp"
#include "checkpoint/shard_plan.hpp"
#include "fewbit/prepare.hpp"
#include "prepared/expert_slice.hpp"
#include "prepared/journal.hpp"
#include "prepared/layer_file.hpp"
#include "prepared/manifest.hpp"
#include "prepared/source_files.hpp"
#include "select/backend.hpp"

namespace fewbit {

struct PlannedLayer {
  PreparedLayerInfo info;
  const Backend* backend = nullptr;
  LayerExperts experts;
  bool zero_biases = false;  // all of them, so that there are none
  ExpertSlice slice;
  LayerFile file;
};

// One step that is done or not: an expert, or a tensor that stays as it is.
struct PrepareTask {
  std::size_t file = 0;    // 0: the rest; l + 1: layer l
  std::int64_t index = 0;  // expert of the slice, or kept tensor
  std::uint64_t source_bytes = 0;
};

struct PreparePlan {
  std::vector<PlannedLayer> layers;
  std::vector<const TensorInfo*> kept;  // of the source
  ShardPlan rest;                       // where they go: model.safetensors
  std::vector<PrepareTask> tasks;       // their numbers are those of the journal
  // No kept tensor is quantized: a quantization config would speak of weights that are not there.
  bool plain_rest = false;
  std::vector<SourceFile> sources;
  JobIdentity identity;
  std::uint64_t source_bytes = 0;  // of all tasks

  std::size_t files() const { return layers.size() + 1; }
  std::string file_name(std::size_t file) const;
  std::uint64_t file_bytes(std::size_t file) const;
};

// The identified modules are borrowed. Errors: see prepare_checkpoint.
Result<PreparePlan> plan_prepare(const Checkpoint& source, const Identified& identified,
                                 const PrepareOptions& options);

// What preparing the source for the backends, the split and the activations of a manifest gives: to
// compare. Errors: as above; inconsistent for a layer that the manifest lacks.
Result<PreparePlan> plan_again(const Checkpoint& source, const Identified& identified,
                               const PreparedManifest& manifest);

}  // namespace fewbit
