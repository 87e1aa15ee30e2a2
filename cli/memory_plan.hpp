// SPDX-License-Identifier: Apache-2.0
// Memory that a model takes as stored and prepared for this machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "checkpoint/json.hpp"
#include "fewbit/fewbit.hpp"
#include "select/layer_problem.hpp"

namespace fewbit::cli {

struct MemoryPlan {
  std::uint64_t stored = 0;                       // all tensors
  std::uint64_t packed = 0;                       // of the backends' own
  std::uint64_t replaced = 0;                     // stored bytes that are not needed once packed
  std::uint64_t in_place = 0;                     // of matrices that a backend reads in the file
  std::uint64_t without = 0;                      // of matrices that no backend can run
  std::map<std::string, std::uint64_t> matrices;  // by backend

  std::uint64_t prepared() const { return stored - replaced + packed; }
};

// An expert's matrix is given to the backend that is selected for its layer, any other to the first
// that can run its scheme and shape on the device.
MemoryPlan plan_memory(const Checkpoint& checkpoint, const Identified& identified,
                       const MoeLayers& layers, const DeviceInfo& device);
std::string memory_text(const MemoryPlan& plan);
Json memory_json(const MemoryPlan& plan);

}  // namespace fewbit::cli
