// SPDX-License-Identifier: Apache-2.0
// MXFP4 and FP8 weights -> what Marlin kernels read. One matrix of all experts.
#pragma once

#include <cstdint>
#include <optional>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/marlin_repack.hpp"
#include "layout/place.hpp"

namespace fewbit {

struct MarlinFloatResult {
  Tensor words;   // i32 [experts, k/16, n * 2] tiles, FP8 [experts, k/16, n * 4]
  Tensor scales;  // MXFP4 e8m0 [experts, k/32, n]; FP8 16-bit [experts, groups, n]
  Tensor bias;    // [experts, n], empty without
};

struct MarlinMxfp4Matrix {
  TensorView codes;                // u8 [experts, n, k/2], the even k low
  TensorView scales;               // e8m0 [experts, n, k/32]
  std::optional<TensorView> bias;  // f16 or bf16 [experts, n]
};
// activation bits16: scales as they are, in the order of byte scales (ByteScaleGrid). f8_e4m3:
// codes in the tiles for 8-bit activations, and each scale times 2^6 (marlin_e8m0_byte) in the
// single order; as_vllm lets 2^122 pass, whose byte is no number. Errors invalid_argument (where:
// the tensor): dtype, shape, n that is no multiple of 64, k that is none of 32, scales that kernels
// can't hold (their number); unsupported for int8 activations; limit (memory can't be had).
Result<MarlinFloatResult> prepare_marlin_mxfp4(const MarlinMxfp4Matrix& matrix, Dims dims,
                                               MarlinActivation activation, MarlinRules rules,
                                               Executor& executor = serial_executor());

// Kernels for 16-bit activations move the bits of an e4m3 into the 16-bit type, whose exponents
// have another bias: value * 2^-120 in bf16, * 2^-8 in f16. The scales repay that.
constexpr float marlin_e4m3_lift(DType activation_dtype) {
  return activation_dtype == DType::bf16 ? 0x1p120F : 0x1p8F;
}

struct MarlinFp8Matrix {
  TensorView codes;  // f8_e4m3 [experts, n, k]
  // f32, bf16 or f16: [experts], [experts, n], or of blocks [experts, ceil(n/128), k/128].
  TensorView scales;
  std::optional<TensorView> bias;  // of activation_dtype [experts, n]
};
// Scales become activation_dtype (bf16 or f16), one group over k or blocks of 128.
// Errors as above, k a multiple of 16 and with blocks of 128; scales that are finite and times
// marlin_e4m3_lift not.
Result<MarlinFloatResult> prepare_marlin_fp8(const MarlinFp8Matrix& matrix, Dims dims,
                                             DType activation_dtype,
                                             Executor& executor = serial_executor());

}  // namespace fewbit
