// SPDX-License-Identifier: Apache-2.0
// The order of the rows of fused gate/up weights (w13), and from which source row each row of a
// prepared matrix comes. Kernels read gate rows first, then up rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/hd.hpp"
#include "fewbit/layouts.hpp"

namespace fewbit {

// Row n of the result is row (n + shift) mod rows of the source.
struct RowRotation {
  std::int64_t rows = 0;
  std::int64_t shift = 0;

  FEWBIT_HD constexpr std::int64_t source(std::int64_t n) const {
    const std::int64_t row = n + shift;
    return row < rows ? row : row - rows;
  }
};

// Rows as stored -> [gate; up]. rows is even for gated weights.
FEWBIT_HD constexpr RowRotation to_gate_up(std::int64_t rows, Gating gating, W13Order order) {
  const bool rotate = gating == Gating::gated && order == W13Order::up_gate;
  return {.rows = rows, .shift = rotate ? rows / 2 : 0};
}

// Row n of out is row rows.source(n) of in. Both hold rows.rows rows of equal size and do not
// overlap.
void reorder_rows(RowRotation rows, std::span<const std::byte> in, std::span<std::byte> out);

}  // namespace fewbit
