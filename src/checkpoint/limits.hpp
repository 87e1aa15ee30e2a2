// SPDX-License-Identifier: Apache-2.0
// Counts that no published file comes near, so that a hostile header can't ask for much memory: a
// tensor takes about a kilobyte once it is identified.
#pragma once

#include <cstdint>

namespace fewbit {

constexpr std::uint64_t max_tensors_in_file = std::uint64_t{1} << 18;
constexpr std::uint64_t max_gguf_pairs = std::uint64_t{1} << 16;

}  // namespace fewbit
