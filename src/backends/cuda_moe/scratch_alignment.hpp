// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace fewbit::cuda {

// What parts of a workspace begin at multiples of.
inline constexpr std::uint64_t scratch_alignment = 1024;
constexpr std::uint64_t scratch_aligned(std::uint64_t bytes) {
  return (bytes + scratch_alignment - 1) / scratch_alignment * scratch_alignment;
}

}  // namespace fewbit::cuda
