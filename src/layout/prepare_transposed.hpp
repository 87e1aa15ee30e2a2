// SPDX-License-Identifier: Apache-2.0
// Weights stored by rows n -> by columns, as Atlas' kernels read them: 4-bit codes of one or more
// matrices side by side, and FP8 with a scale a block of 128 x 128.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/place.hpp"

namespace fewbit {

struct F4TransposePart {
  TensorView codes;   // u8 [n, k/2], the even k low
  TensorView scales;  // bytes [n, k/group]: e4m3 for groups of 16, e8m0 for 32
  // Groups of 16: f32 [1], or [n] with one a row.
  std::optional<TensorView> globals;
};
struct F4TransposeInput {
  std::int64_t k = 0;
  std::int64_t group = 16;  // NVFP4, or 32: MXFP4
  std::int64_t align = 1;   // columns of the result are padded with zeros to a multiple of it
  std::vector<F4TransposePart> parts;
};
struct F4TransposeResult {
  Tensor codes;                        // u8 [k/2, stride]  F4Transposed
  Tensor scales;                       // as stored [k/group, stride]  F4TransposedScales
  Tensor globals;                      // f32 [1] where all parts have the same one, else [stride]
  std::vector<std::int64_t> first_of;  // column of each part
};

// Errors invalid_argument (where: the tensor): no parts, dtype, shape, k that is no multiple of the
// group, global scales that are missing, or there with groups of 32; limit (memory can't be had).
// Kernels that copy 16 bytes at a time need an align of 16.
Result<F4TransposeResult> transpose_f4(const F4TransposeInput& input,
                                       Executor& executor = serial_executor());

struct Fp8TransposeResult {
  Tensor codes;   // f8_e4m3 [k, n]
  Tensor scales;  // f32 [ceil(k/128), ceil(n/128)]
};
// codes f8_e4m3 [n, k], scales f32 or bf16 [ceil(n/128), ceil(k/128)]. Of the result, with n and k
// exchanged, it gives the matrix back. Errors as above.
Result<Fp8TransposeResult> transpose_fp8(const TensorView& codes, const TensorView& scales,
                                         Dims dims, Executor& executor = serial_executor());

}  // namespace fewbit
