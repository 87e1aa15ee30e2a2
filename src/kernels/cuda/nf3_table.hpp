// SPDX-License-Identifier: Apache-2.0
// NF3's magnitudes as sums of two bf16.
//
// Times 10^4 they are whole numbers of 14 bits, and every one of these has such a sum. So products
// with both parts are exact, and the factor 10^-4 goes into the global scale.
#pragma once

#include <cstdint>

namespace fewbit::cuda {

struct Nf3Table {
  // Pairs of bf16, those of the lower magnitude in the lower 16 bits.
  static constexpr std::uint32_t high01 = 0x455F449FU;  // 1272, 3568
  static constexpr std::uint32_t high23 = 0x461C45BDU;  // 6048, 9984
  static constexpr std::uint32_t low01 = 0xC0A04040U;   // 3, -5
  static constexpr std::uint32_t low23 = 0x4180BF80U;   // -1, 16
  static constexpr float factor = 1e-4F;
};

}  // namespace fewbit::cuda
