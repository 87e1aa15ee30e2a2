// SPDX-License-Identifier: Apache-2.0
// One scale a shard of a fused matrix (q, k and v in one): spread over rows, or merged into one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "fewbit/result.hpp"

namespace fewbit {

// scales[i] for each of the rows[i] rows of shard i, a single scale for all rows: keeps every code
// as it is. Errors: invalid_argument (numbers differ, a negative number of rows).
Result<std::vector<float>> spread_shard_scales(std::span<const float> scales,
                                               std::span<const std::int64_t> rows);

// The one scale that a loader with a scale a matrix needs, and e4m3 codes for it. Values are
// rounded to f16, and once more to e4m3 (saturating) after the division by the largest scale. A
// last scale of -448 or less marks a matrix that was fused when it was quantized, with one scale:
// its codes stay. `codes` holds sum(rows) rows of k; changed in place.
// Errors: as spread_shard_scales, and codes of another size.
Result<float> merge_shard_scales(std::span<const float> scales, std::span<const std::int64_t> rows,
                                 std::int64_t k, std::span<std::uint8_t> codes);

}  // namespace fewbit
