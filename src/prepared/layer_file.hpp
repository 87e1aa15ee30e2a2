// SPDX-License-Identifier: Apache-2.0
// The safetensors file of one prepared layer: a u8 tensor [experts, bytes] for each buffer, every
// one at the alignment of its plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/mapped_file.hpp"
#include "prepared/manifest.hpp"

namespace fewbit {

struct LayerFile {
  std::string header;                // length, JSON and padding: the first bytes of the file
  std::vector<std::uint64_t> begin;  // of each buffer, from the start of the file
  std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps;  // place and size of padding
  std::uint64_t bytes = 0;
};
// Error limit: the sizes overflow.
Result<LayerFile> plan_layer_file(const PreparedLayerInfo& layer);

// The buffers of a mapped layer file, all checked against the manifest: presence, type, size,
// alignment. Errors corrupt: file, tensor and numbers.
Result<PreparedMemory> map_layer(const PreparedLayerInfo& layer,
                                 const std::shared_ptr<const MappedFile>& file);

}  // namespace fewbit
