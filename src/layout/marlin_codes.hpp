// SPDX-License-Identifier: Apache-2.0
// What Marlin's FP8 kernels make of 4-bit codes: sign and three bits of magnitude, the magnitude of
// negative ones less one. A kernel moves them into an e4m3 (sign, lowest bits), adds one where
// negative and so has (code - zero) * 2^-9; the scales repay the 512.
#pragma once

#include <cstdint>
#include <optional>

#include "core/hd.hpp"

namespace fewbit {

inline constexpr float marlin_fp8_scale_lift = 512.0F;
inline constexpr unsigned marlin_middle = 8;  // the zero point of codes without zero points

// code, zero: 0 to 15. None where code - zero is not in -8 to 7, which the kernels can't hold.
constexpr std::optional<unsigned> marlin_fp8_code(unsigned code, unsigned zero) {
  const int value = static_cast<int>(code) - static_cast<int>(zero);
  if (value < -8 || value > 7) return std::nullopt;
  return static_cast<unsigned>(value >= 0 ? value : 7 - value);
}

// As vLLM: the same for zero point 8. With others, codes below the zero point mean code - 8, and
// those more than 7 above it become negative.
FEWBIT_HD constexpr unsigned marlin_fp8_code_as_vllm(unsigned code, unsigned zero) {
  return code >= zero ? code - zero : 15U - code;
}

}  // namespace fewbit
