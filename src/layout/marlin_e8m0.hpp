// SPDX-License-Identifier: Apache-2.0
// MXFP4 scales of Marlin's kernels for FP8 activations: the byte of 2^6 times the scale.
#pragma once

#include <cstdint>
#include <optional>

#include "core/hd.hpp"

namespace fewbit {

// 2^121. vLLM lets 2^122 pass, which becomes 255: not a number, or infinity as bf16 bits.
inline constexpr std::uint8_t marlin_e8m0_largest = 248;

// None above marlin_e8m0_largest, which the kernels can't hold (NaN too).
FEWBIT_HD constexpr std::optional<std::uint8_t> marlin_e8m0_byte(std::uint8_t scale) {
  if (scale > marlin_e8m0_largest) return std::nullopt;
  return static_cast<std::uint8_t>(scale + 6);
}

}  // namespace fewbit
