// SPDX-License-Identifier: Apache-2.0
// Round-to-nearest NVFP4 of rows, given the matrix's global scale.
#pragma once

#include <cstdint>
#include <span>

#include "fewbit/result.hpp"

namespace fewbit {

inline constexpr std::int64_t nvfp4_group_size = 16;

struct Nvfp4Counts {
  std::int64_t erased_blocks = 0;
  std::int64_t clamped_scales = 0;
};

// amax / (6 * 448): the largest weight becomes the largest code times the largest scale. 1 for a
// matrix of zeros; never zero.
float nvfp4_global_scale(float amax);

// max |w|. Error corrupt names the place of a NaN or infinity as [first_row + r, column].
Result<float> finite_amax(std::int64_t k, std::int64_t first_row, std::span<const float> rows);

// Whole rows: weights [rows * k], codes [rows * k/2], scales [rows * k/16] e4m3; k % 16 == 0,
// weights finite, global_scale > 0.
//   scale = e4m3(clamp(block_amax / (6 * global_scale), 2^-9, 448)), of a zero block 1
//   code = e2m1(w / (scale * global_scale)), ties to even
void quantize_nvfp4_rows(std::span<const float> weights, float global_scale,
                         std::span<std::byte> codes, std::span<std::byte> scales,
                         Nvfp4Counts& counts);

}  // namespace fewbit
