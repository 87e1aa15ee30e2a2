// SPDX-License-Identifier: Apache-2.0
// Block scales as tensor cores read them: tiles of 128 rows x 4 columns, padded with zeros.
//
// Element (r, c) of a grid [rows, cols] is number
//   ((r/128) * ceil(cols/4) + c/4) * 512 + (r%32) * 16 + ((r%128)/32) * 4 + c%4
// Batches are consecutive padded grids.
#pragma once

#include "core/checked.hpp"
#include "layout/place.hpp"

namespace fewbit {

// dims.n = rows, dims.k = columns of the grid (k / group_size). element_bits 8 for f8 scales, 16
// for bf16.
template <int element_bits>
struct Swizzle128x4 {
  static constexpr int bits = element_bits;
  static constexpr std::int64_t element_bytes = element_bits / 8;
  static constexpr std::int64_t tile_elements = 512;

  // The padded grid, as the engines give the shape of the swizzled tensor.
  FEWBIT_HD static constexpr Dims padded(Dims d) {
    return {.n = round_up<std::int64_t>(d.n, 128), .k = round_up<std::int64_t>(d.k, 4)};
  }
  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) {
    return padded(d).n * padded(d).k * element_bytes;
  }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) {
    return (padded(d).n * padded(d).k - d.n * d.k) * bits;
  }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t tile = (n / 128) * ceil_div<std::int64_t>(d.k, 4) + k / 4;
    const std::int64_t index = tile * tile_elements + (n % 32) * 16 + (n % 128) / 32 * 4 + k % 4;
    return {.byte = index * element_bytes, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t index = p.byte / element_bytes;
    const std::int64_t tile = index / tile_elements;
    const std::int64_t in_tile = index % tile_elements;
    return {.n = tile / ceil_div<std::int64_t>(d.k, 4) * 128 + in_tile / 4 % 4 * 32 + in_tile / 16,
            .k = tile % ceil_div<std::int64_t>(d.k, 4) * 4 + in_tile % 4};
  }
};

}  // namespace fewbit
