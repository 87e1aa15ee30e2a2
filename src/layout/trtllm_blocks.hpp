// SPDX-License-Identifier: Apache-2.0
// 4-bit codes of TRT-LLM's MXINT4 MoE kernels: rows in its order (TrtllmRows), cut into columns of
// 256 codes: bytes [k/256, rows, 128], the even k of a byte low.
#pragma once

#include "layout/place.hpp"
#include "layout/trtllm_rows.hpp"

namespace fewbit {

template <Gating gating>
struct TrtllmBlocks {
  static constexpr int bits = 4;
  static constexpr std::int64_t block_k = 256;
  static constexpr std::int64_t block_bytes = block_k / 2;

  FEWBIT_HD static constexpr TrtllmRows rows(Dims d) {
    return {.rows = d.n, .gating = gating, .block = TrtllmBlock::rows_32};
  }
  FEWBIT_HD static constexpr bool accepts(Dims d) {
    return rows(d).accepted() && d.k > 0 && d.k % block_k == 0;
  }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * (d.k / 2); }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }
  // Of row p of n in their order.
  FEWBIT_HD static constexpr Place block_place(std::int64_t n, std::int64_t p, std::int64_t k) {
    const std::int64_t row = k / block_k * n + p;
    return {.byte = row * block_bytes + k % block_k / 2, .bit = static_cast<int>(k % 2) * 4};
  }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return block_place(d.n, rows(d).place(n), k);
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    const std::int64_t row = p.byte / block_bytes;
    return {.n = rows(d).source(row % d.n),
            .k = row / d.n * block_k + 2 * (p.byte % block_bytes) + p.bit / 4};
  }
};

}  // namespace fewbit
