// SPDX-License-Identifier: Apache-2.0
// The files of an output beside the packed ones, and what its manifest says.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/mapped_file.hpp"
#include "prepared/prepare_plan.hpp"

namespace fewbit {

// A side file of the source, or the config that is written in its place.
struct SmallFile {
  std::string name;
  std::shared_ptr<const MappedFile> mapped;
  std::string text;  // when not mapped

  std::span<const std::byte> bytes() const {
    return mapped ? mapped->bytes() : std::as_bytes(std::span(text));
  }
};
// Error inconsistent: a side file is not what it was when the plan was made.
Result<std::vector<SmallFile>> small_files(const Checkpoint& source, const PreparePlan& plan);

// hashes: of the plan's files, in order.
PreparedManifest output_manifest(const PreparePlan& plan, const PrepareSplit& split,
                                 const std::vector<std::string>& hashes,
                                 const std::vector<SmallFile>& small);

}  // namespace fewbit
