// SPDX-License-Identifier: Apache-2.0
#include "layout/cpu_f4_lane16_pack.hpp"

#include <algorithm>
#include <cstring>

namespace fewbit {
namespace {

constexpr std::int64_t block_rows = CpuF4Lane16::block_rows;

// Transposes the elements of T of up to 16 rows, `stride` bytes apart: out[i][row].
template <class T>
void transpose(const std::uint8_t* in, std::int64_t stride, std::int64_t rows, std::int64_t count,
               std::uint8_t* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    T lanes[block_rows] = {};
    for (std::int64_t r = 0; r < rows; ++r)
      std::memcpy(&lanes[r], in + r * stride + i * std::int64_t{sizeof(T)}, sizeof(T));
    std::memcpy(out + i * std::int64_t{sizeof(lanes)}, lanes, sizeof(lanes));
  }
}

}  // namespace

void pack_cpu_f4_lane16(const F4Rows& rows, std::uint8_t* codes, std::uint8_t* scales) {
  const auto [n, k] = rows.dims;
  // The 4 bytes of 8 codes of a row are the word of the layout, whatever the byte order.
  for (std::int64_t first = 0; first < n; first += block_rows) {
    const std::int64_t count = std::min(block_rows, n - first);
    transpose<std::uint32_t>(rows.codes + first * k / 2, k / 2, count, k / 8,
                             codes + first * k / 2);
    transpose<std::uint8_t>(rows.scales + first * k / 16, k / 16, count, k / 16,
                            scales + first * k / 16);
  }
}

}  // namespace fewbit
