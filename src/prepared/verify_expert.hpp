// SPDX-License-Identifier: Apache-2.0
// Prepared experts against those of their source.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "prepared/layer_file.hpp"
#include "prepared/prepare_plan.hpp"

namespace fewbit {

// Error inconsistent: the first byte that differs, and both sizes.
Result<void> compare_bytes(const char* name, std::span<const std::byte> prepared,
                           std::span<const std::byte> source, const std::string& where);

// One layer of the prepared model beside the same layer of the source.
struct LayerPair {
  const PlannedLayer* planned = nullptr;  // from the source
  std::shared_ptr<const MappedFile> file;
  PreparedMemory memory;  // within the file
};
// The layer is borrowed. Error inconsistent: header or padding of the file are not as planned.
Result<LayerPair> pair_layer(const std::filesystem::path& folder, const PlannedLayer& layer);

// Expert e of the slice unpacked, or, where the layout can't be undone, packed again. Error
// inconsistent: the part that differs. Lets go of the pages of both.
Result<void> compare_expert(const LayerPair& pair, std::size_t e, const Checkpoint& source);

}  // namespace fewbit
