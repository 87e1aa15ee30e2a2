// SPDX-License-Identifier: Apache-2.0
// MoE weights with 4-bit codes for W4A16 kernels that read the codes as they are stored ("modelopt"
// layout): only scales are prepared, bit for bit as the engines do it (b12x
// `prepare_w4a16_modelopt_native_weights` and `prepare_w4a16_e8m0_native_weights`).
//
// Kernel column n of w13 reads row to_gate_up(...).source(n) of the codes; w2 is never reordered.
// Each matrix has two sets of scales: those of the tile kernels and those of the micro kernel for
// a few tokens.
#pragma once

#include <cstdint>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/place.hpp"
#include "layout/prepare_w4a16.hpp"

namespace fewbit {

// What to do where the columns do not fill the blocks of a scale order.
enum class UnevenColumns {
  refuse,
  cut,  // as b12x: scales past the last column of a permuted block are lost, zeros take their place
};

struct W4a16NativeMatrixPlan {
  Dims dims;
  Dims scale_grid;                 // n, groups along k; the last group may cover fewer k
  std::int64_t scale_columns = 0;  // of the prepared grid: n, padded where the kernels need it
  bool own_micro_scales = false;   // the micro kernel's grid differs: e8m0 rows that were reordered
};
struct W4a16NativePlan {
  std::int64_t experts = 0;
  W4a16NativeMatrixPlan w13;
  W4a16NativeMatrixPlan w2;
};

// Sources modelopt_nvfp4 (k in groups of 16) and fp4_e8m0_k32. There hidden_size is a multiple of
// 32; intermediate_size of 8: when it is not one of 32, w2 has ceil(intermediate_size / 32) scale
// groups and w13 has its scale columns padded to a multiple of 64.
// Errors as plan_w4a16, and unsupported for a source without a native form.
Result<W4a16NativePlan> plan_w4a16_native(const W4a16Input& input, UnevenColumns uneven);

struct W4a16NativeScales {
  Tensor scales;               // [experts, groups, scale_columns] bytes, f8_e4m3 or f8_e8m0
  Tensor global_scales;        // f32 [experts]
  Tensor micro_scales;         // the same memory as scales unless own_micro_scales
  Tensor micro_global_scales;  // f32 [experts]
};
struct W4a16NativeResult {
  W4a16NativeScales w13;
  W4a16NativeScales w2;
  W4a16Report report;
};
// Errors: those of plan_w4a16_native; limit (memory can't be had).
Result<W4a16NativeResult> prepare_w4a16_native(const W4a16Input& input, UnevenColumns uneven,
                                               Executor& executor);

}  // namespace fewbit
