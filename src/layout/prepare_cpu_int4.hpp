// SPDX-License-Identifier: Apache-2.0
// 4-bit GPTQ or AWQ words -> what vLLM's int4 kernels for CPUs read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "fewbit/executor.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"
#include "layout/code_rows.hpp"
#include "layout/place.hpp"
#include "layout/word_source.hpp"

namespace fewbit {

struct CpuInt4Matrix {
  WordSource source = WordSource::gptq;
  TensorView words;   // i32; gptq [experts, k/8, n], awq [experts, k, n/8]
  TensorView scales;  // f16 or bf16 [experts, groups, n]
  // i32 [experts, groups, n/8]; gptq stores zero - 1. Without, every zero point is 8.
  std::optional<TensorView> zeros;
};
struct CpuInt4Result {
  Tensor blocks;  // u8 [experts, n/32, k/block_k, 16 * block_k + 128]  CpuInt4Blocks
  Tensor scales;  // f32 [experts, n/32, groups, 32]  CpuInt4Groups
  Tensor zeros;   // i8, as scales
};

// The same from rows of codes, as canonical weights have them; one expert.
struct CpuInt4Rows {
  std::span<const CodeRows> parts;     // all rows of the matrix
  bool signed_codes = false;           // 8 is added
  TensorView scales;                   // f16 or bf16 [1, groups, n]
  std::span<const std::int8_t> zeros;  // [n, groups], of unsigned codes; empty: 8
};

// Where they go, of those sizes.
struct CpuInt4Output {
  std::span<std::byte> blocks;
  std::span<std::byte> scales;
  std::span<std::byte> zeros;
};

// One of w13 and w2. block_k is the smaller of the group and 128, and must be 16, 32, 64 or 128.
// group_size -1: one group over k.
// Errors invalid_argument (where: the tensor): dtype, shape, n that is no multiple of 32, k that is
// none of the group and of the block; limit (memory can't be had).
Result<CpuInt4Result> prepare_cpu_int4(const CpuInt4Matrix& matrix, Dims dims,
                                       std::int64_t group_size,
                                       Executor& executor = serial_executor());
// The same into memory that there is; invalid_argument: its size.
Result<void> prepare_cpu_int4(const CpuInt4Matrix& matrix, Dims dims, std::int64_t group_size,
                              const CpuInt4Output& out, Executor& executor = serial_executor());

Result<void> prepare_cpu_int4_rows(const CpuInt4Rows& rows, Dims dims, std::int64_t group_size,
                                   const CpuInt4Output& out);

}  // namespace fewbit
