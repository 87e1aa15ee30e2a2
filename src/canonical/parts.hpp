// SPDX-License-Identifier: Apache-2.0
// Checked reading of the parts that several storages share.
#pragma once

#include <string_view>

#include "fewbit/quantized.hpp"

namespace fewbit {

// Errors corrupt, with both sides; `name` is the tensor's.
Result<void> check_part_rank(const Tensor& tensor, std::size_t rank, std::string_view name);
Result<void> check_part_dtype(const Tensor& tensor, DType expected, std::string_view name);

// A factor in f32, f16 or bf16: one for the module, or one an expert. Errors: not_found; corrupt
// (dtype, shape, negative or not finite).
Result<float> read_factor(const Checkpoint& checkpoint, const Module& module,
                          std::string_view suffix, std::int64_t fused_expert);

// [k], or [experts, k] of fused experts, in f32, f16 or bf16; empty when the scheme has none.
// Errors: not_found, corrupt.
Result<Tensor> read_pre_quant_scale(const Checkpoint& checkpoint, const Module& module,
                                    std::int64_t fused_expert);

// MLX's u32 words along the rows as the bytes that they are, of this type.
void words_as_bytes(Tensor& tensor, DType dtype);

}  // namespace fewbit
