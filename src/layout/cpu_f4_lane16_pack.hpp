// SPDX-License-Identifier: Apache-2.0
// Fast packer of cpu_f4_lane16: the bytes that pack<CpuF4Lane16> and pack<CpuF4Lane16Scales> give.
#pragma once

#include <cstdint>

#include "layout/cpu_f4_lane16.hpp"

namespace fewbit {

// Row-major source, of any alignment.
struct F4Rows {
  const std::uint8_t* codes = nullptr;   // [n, k/2], low nibble = even k
  const std::uint8_t* scales = nullptr;  // [n, k/16]
  Dims dims;
};

// Writes every byte of both buffers, padding included, so they need not be cleared.
// Precondition: CpuF4Lane16::accepts(rows.dims); codes and scales of the layout's sizes.
void pack_cpu_f4_lane16(const F4Rows& rows, std::uint8_t* codes, std::uint8_t* scales);

}  // namespace fewbit
