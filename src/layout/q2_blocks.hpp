// SPDX-License-Identifier: Apache-2.0
// 2-bit codes in blocks of one group with their scale: rows of k/group blocks, each an f16 scale
// and then the codes, low bits first. Value = (code - 1) * scale.
#pragma once

#include "layout/place.hpp"

namespace fewbit {

template <std::int64_t group>
struct Q2Blocks {
  static constexpr int bits = 2;
  static constexpr std::int64_t scale_bytes = 2;
  static constexpr std::int64_t block_bytes = scale_bytes + group / 4;
  static_assert(group % 4 == 0);

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0 && d.k % group == 0; }
  FEWBIT_HD static constexpr std::int64_t blocks(Dims d) { return d.n * (d.k / group); }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return blocks(d) * block_bytes; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims d) { return blocks(d) * scale_bytes * 8; }

  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    const std::int64_t block = n * (d.k / group) + k / group;
    return {.byte = block * block_bytes + scale_bytes + k % group / 4,
            .bit = static_cast<int>(k % 4) * 2};
  }
  // Of the scale of (n, k).
  FEWBIT_HD static constexpr Place scale_place(Dims d, std::int64_t n, std::int64_t k) {
    return {.byte = (n * (d.k / group) + k / group) * block_bytes, .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t block = p.byte / block_bytes;
    const std::int64_t in_block = p.byte % block_bytes - scale_bytes;
    if (in_block < 0) return {.n = -1, .k = -1};
    const std::int64_t blocks_k = d.k / group;
    return {.n = block / blocks_k, .k = block % blocks_k * group + 4 * in_block + p.bit / 2};
  }
};

}  // namespace fewbit
