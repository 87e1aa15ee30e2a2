// SPDX-License-Identifier: Apache-2.0
// 4-bit GPTQ words -> what vLLM's XPU kernels read: rows of codes and rows of scales.
#pragma once

#include <cstdint>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/place.hpp"

namespace fewbit {

struct XpuMatrix {
  TensorView words;   // i32 [experts, k/8, n], 8 for 0
  TensorView scales;  // f16 or bf16 [experts, k/group_size, n]
};
struct XpuResult {
  Tensor codes;   // u8 [experts, n, k/2], the even k low, still 8 for 0
  Tensor scales;  // [experts, n, k/group_size]
};

// One of w13 and w2; a bias stays as it is. The kernels know no zero points and no act-order.
// Errors invalid_argument (where: the tensor): dtype, shape, k that is no multiple of 8 and of the
// group size; limit (memory can't be had).
Result<XpuResult> prepare_xpu(const XpuMatrix& matrix, Dims dims, std::int64_t group_size,
                              Executor& executor = serial_executor());

}  // namespace fewbit
