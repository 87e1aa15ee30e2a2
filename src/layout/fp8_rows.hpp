// SPDX-License-Identifier: Apache-2.0
// Rows of weights as e4m3 for kernels with FP8 matrix instructions, as Atlas converts them at load.
#pragma once

#include <cstdint>
#include <span>

namespace fewbit {

// weight ~ code * scale with scale = largest magnitude / 448, 1 for a row of zeros; NaN are not
// counted and become NaN. Each code is the nearest to weight * (1 / scale). Returns the scale.
// row: bf16 bits; codes: as many.
float bf16_row_to_fp8(std::span<const std::uint16_t> row, std::span<std::uint8_t> codes);

// One row of NVFP4.
struct Nvfp4Row {
  std::span<const std::uint8_t> codes;   // [k/2], the even k low
  std::span<const std::uint8_t> scales;  // e4m3 [k/16]
  float global_scale = 1.0F;
};

// As Atlas: the weights themselves as e4m3, without an output scale. What is below 2^-10 becomes 0,
// and below 2^-6 the step is 2^-9. codes: [k].
void nvfp4_row_to_fp8(const Nvfp4Row& row, std::span<std::uint8_t> codes);

// The same with a scale a row, as bf16_row_to_fp8 has it: no weight is near the smallest code
// because all of its row are. Returns the scale.
float nvfp4_row_to_scaled_fp8(const Nvfp4Row& row, std::span<std::uint8_t> codes);

}  // namespace fewbit
