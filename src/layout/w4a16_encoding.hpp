// SPDX-License-Identifier: Apache-2.0
// What becomes of each scale byte of a W4a16ScaleJob.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "layout/byte_survey.hpp"
#include "layout/row_major.hpp"
#include "layout/swizzle_128x4.hpp"
#include "layout/w4a16_scales.hpp"

namespace fewbit {

using ByteTable = std::array<std::byte, 256>;

// And which bytes there are: the table is that of these, other bytes become zeros.
struct ScaleEncoding {
  ByteTable table{};
  ByteRange extent;
  std::uint8_t largest = 0;  // of the positive e4m3 scales, 0 without one
};

// largest: of all experts with one encoding, a positive e4m3 scale or 0. 1 of e8m0.
float scale_factor(const W4a16ScaleJob& job, std::uint8_t largest);
// known: a largest scale of other experts with the same encoding, or 0. Fills the factor and the
// counts of the report.
ScaleEncoding encode_scales(const W4a16ScaleJob& job, std::span<const std::byte> scales,
                            std::uint8_t known, Executor& executor, W4a16ScaleReport& report);

// Bytes of one expert's scales, and where one of them lies.
inline std::int64_t source_bytes(const W4a16ScaleJob& job) {
  return job.storage == BlockScaleStorage::plain ? RowMajor<8>::bytes(job.grid)
                                                 : Swizzle128x4<8>::bytes(job.grid);
}
inline std::int64_t source_place(const W4a16ScaleJob& job, std::int64_t row, std::int64_t group) {
  return job.storage == BlockScaleStorage::plain
             ? RowMajor<8>::place(job.grid, row, group).byte
             : Swizzle128x4<8>::place(job.grid, row, group).byte;
}

}  // namespace fewbit
