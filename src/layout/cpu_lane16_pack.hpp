// SPDX-License-Identifier: Apache-2.0
// Fast packers of cpu_lane16: the bytes that pack<CpuLane16<…>> and pack<CpuLane16Groups<…>> give.
// Sources are row-major and of any alignment. Every byte of the results is written, padding
// included, so they need not be cleared.
#pragma once

#include <cstdint>

#include "layout/cpu_lane16.hpp"

namespace fewbit {

// bits: 2, 3, 4 (each row a stream of codes, low bits first) or 8. dims: of the codes, whatever the
// layout counts. padding: the bytes of rows past the last one, whose block must mean zeros where it
// has one scale for all. Precondition: CpuF4Lane16::accepts(dims).
void pack_cpu_lane16_codes(int bits, Dims dims, const std::uint8_t* in, std::uint8_t* out,
                           std::uint8_t padding = 0);
// bits: 8, 16 or 32; grid: [n, groups].
void pack_cpu_lane16_groups(int bits, Dims grid, const std::uint8_t* in, std::uint8_t* out);

// e2m1 with a scale of a byte for 16 k.
struct F4Rows {
  const std::uint8_t* codes = nullptr;   // [n, k/2], low nibble = even k
  const std::uint8_t* scales = nullptr;  // [n, k/16]
  Dims dims;
};
void pack_cpu_f4_lane16(const F4Rows& rows, std::uint8_t* codes, std::uint8_t* scales);

}  // namespace fewbit
