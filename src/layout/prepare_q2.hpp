// SPDX-License-Identifier: Apache-2.0
// 2-bit codes and their scales in blocks (Q2_0), and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/place.hpp"

namespace fewbit {

struct Q2Rows {
  TensorView codes;   // u8 [n, k/4], low bits first; value = (code - 1) * scale
  TensorView scales;  // f16 [n, k/group]
};
struct Q2RowsResult {
  Tensor codes;
  Tensor scales;
};

// u8 [n, k/group, 2 + group/4]  Q2Blocks. group 64 or 128, a divisor of k. Errors invalid_argument
// (where: the tensor): group, dtype, shape; limit (memory can't be had).
Result<Tensor> pack_q2(const Q2Rows& rows, Dims dims, std::int64_t group,
                       Executor& executor = serial_executor());
// Into memory of the caller. Errors besides: invalid_argument (where "result"): its size.
Result<void> pack_q2(const Q2Rows& rows, Dims dims, std::int64_t group, std::span<std::byte> out,
                     Executor& executor);
Result<Q2RowsResult> unpack_q2(const TensorView& blocks, Dims dims, std::int64_t group,
                               Executor& executor = serial_executor());

}  // namespace fewbit
