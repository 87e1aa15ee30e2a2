// SPDX-License-Identifier: Apache-2.0
// MoE weights -> what TRT-LLM's fused MoE kernels in FlashInfer read.
#pragma once

#include <cstdint>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/row_order.hpp"

namespace fewbit {

struct TrtllmMatrix {
  TensorView codes;
  TensorView scales;
};
struct TrtllmMatrixResult {
  Tensor codes;
  Tensor scales;
};
struct TrtllmResult {
  TrtllmMatrixResult gemm1;
  TrtllmMatrixResult gemm2;
};

// NVFP4 and MXFP4. Rows of gemm1 as the kernels want them: up first, then gate.
//   codes   u8 [experts, n, k/2] -> the same shape, rows in the order of TrtllmRows
//   scales  e4m3 [experts, n, k/16], or e8m0 [experts, n, k/32] -> those rows, swizzled 128x4: the
//           same with the last extent rounded up to a multiple of 4
struct TrtllmFp4Input {
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  Gating gating = Gating::gated;
  std::int64_t epilogue_tile_m = 128;
  std::int64_t group = 16;  // NVFP4, or 32: MXFP4
  TrtllmMatrix gemm1;
  TrtllmMatrix gemm2;
};
// Errors invalid_argument (where: the tensor): group, dtype, shape, rows that are no multiple of
// 128, k that is none of the group; limit (memory can't be had).
Result<TrtllmResult> prepare_trtllm_fp4(const TrtllmFp4Input& input,
                                        Executor& executor = serial_executor());

// MXINT4: 4-bit codes with 8 for 0 and bf16 scales for 32 k. Rows of w13 (gemm1) as stored: gate
// first, then up.
//   codes   i32 [experts, n, k/8]     -> u8 [experts, k/256, n, 128], two's complement
//   scales  bf16 [experts, n, k/32]   -> those rows, swizzled 128x4: [experts, n * k/32]
struct TrtllmMxint4Input {
  std::int64_t hidden_size = 0;        // a multiple of 256, as
  std::int64_t intermediate_size = 0;  // this
  TrtllmMatrix gemm1;
  TrtllmMatrix gemm2;
};
Result<TrtllmResult> prepare_trtllm_mxint4(const TrtllmMxint4Input& input,
                                           Executor& executor = serial_executor());

}  // namespace fewbit
