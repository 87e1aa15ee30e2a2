// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "select/moe_plan.hpp"

namespace fewbit {

// Memory for one expert's shares, kept from one expert to the next.
struct ExpertScratch {
  AlignedBuffer memory;
  std::vector<std::span<std::byte>> shares;

  // Shares of packed and at_open buffers, each at its alignment; verbatim ones are empty. Error
  // limit: memory can't be had.
  Result<void> lay_out(const MoePlan& plan);
};

}  // namespace fewbit
