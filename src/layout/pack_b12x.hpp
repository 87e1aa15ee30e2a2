// SPDX-License-Identifier: Apache-2.0
// Packing the 4-bit codes of all experts into B12xPacked tiles, on all threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/selection.hpp"
#include "layout/place.hpp"
#include "layout/row_order.hpp"

namespace fewbit {

// codes [experts, n, k/2] -> tiles [experts, k/16, n/64, 512 bytes]; row n of the result is row
// rows.source(n) of the codes.
struct B12xPackJob {
  std::int64_t experts = 0;
  Dims dims;         // of one expert; B12xPacked::accepts(dims)
  RowRotation rows;  // rows.rows == dims.n
  IsaLevel isa = IsaLevel::generic;

  std::int64_t expert_bytes() const { return dims.n * (dims.k / 2); }
};

// codes and tiles hold experts * expert_bytes() bytes each and do not overlap.
void pack_b12x(const B12xPackJob& job, std::span<const std::byte> codes, std::span<std::byte> tiles,
               Executor& executor);

// The same within one buffer: the codes are replaced by the tiles. One expert's codes are copied
// aside at a time, so the extra memory is expert_bytes(). Error limit: they can't be had.
Result<void> pack_b12x_in_place(const B12xPackJob& job, std::span<std::byte> buffer,
                                Executor& executor);

}  // namespace fewbit
