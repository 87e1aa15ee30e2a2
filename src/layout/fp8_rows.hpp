// SPDX-License-Identifier: Apache-2.0
// Rows of weights as e4m3 for kernels with FP8 matrix instructions, as Atlas converts them at load.
#pragma once

#include <cstddef>
#include <span>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/place.hpp"

namespace fewbit {

// weight ~ code * scale, the scale of its row.
struct Fp8Rows {
  Tensor codes;   // f8_e4m3 [n, k]
  Tensor scales;  // f32 [n]; empty without
};

// Memory of the caller: n * k codes, n scales or none.
struct Fp8Target {
  std::span<std::byte> codes;
  std::span<float> scales;
};

// The scale is the row's largest magnitude / 448, 1 for a row of zeros; NaN are not counted and
// become NaN. Each code is the nearest to weight * (1 / scale). weights: bf16 [n, k].
// Errors invalid_argument (where: the tensor): dtype, shape; limit (memory can't be had).
Result<Fp8Rows> bf16_to_fp8_rows(const TensorView& weights, Dims dims,
                                 Executor& executor = serial_executor());
// The same without new memory. Errors: result (both numbers) too.
Result<void> bf16_to_fp8_rows(const TensorView& weights, Dims dims, const Fp8Target& to,
                              Executor& executor = serial_executor());

struct Nvfp4Rows {
  TensorView codes;   // u8 [n, k/2], the even k low
  TensorView scales;  // f8_e4m3 [n, k/16]
  float global_scale = 1.0F;
};

// Fp8RowScale::none is as Atlas has it, the weights themselves as e4m3: what is below 2^-10 becomes
// 0, and below 2^-6 the step is 2^-9. per_row has scales as above: no weight is near the smallest
// code because all of its row are.
enum class Fp8RowScale { none, per_row };
// Errors: those above; k that is no multiple of 16.
Result<Fp8Rows> nvfp4_to_fp8_rows(const Nvfp4Rows& rows, Dims dims, Fp8RowScale scale,
                                  Executor& executor = serial_executor());
Result<void> nvfp4_to_fp8_rows(const Nvfp4Rows& rows, Dims dims, Fp8RowScale scale,
                               const Fp8Target& to, Executor& executor = serial_executor());

}  // namespace fewbit
