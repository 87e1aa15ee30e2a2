// SPDX-License-Identifier: Apache-2.0
// One function a storage: from the parts of a module to the canonical form.
#pragma once

#include <string_view>

#include "fewbit/quantized.hpp"

namespace fewbit {

// fused_expert: -1 for a module with one matrix, else which of module.experts. Checked by the
// caller; all other rules (presence, dtype, shape) are checked here.
Result<QuantizedTensor> canonicalize_plain(const Checkpoint& checkpoint, const Module& module,
                                           std::int64_t fused_expert);
Result<QuantizedTensor> canonicalize_nvfp4(const Checkpoint& checkpoint, const Module& module,
                                           std::int64_t fused_expert);
// E2M1 codes under the names and orders of every producer.
Result<QuantizedTensor> canonicalize_fp4(const Checkpoint& checkpoint, const Module& module,
                                         std::int64_t fused_expert);
// The same names and orders with integers of AutoRound's mx_int4.
Result<QuantizedTensor> canonicalize_mx_int4(const Checkpoint& checkpoint, const Module& module,
                                             std::int64_t fused_expert);
// Words along k with a scale and an offset a group: MLX.
Result<QuantizedTensor> canonicalize_affine_words(const Checkpoint& checkpoint,
                                                  const Module& module, std::int64_t fused_expert);
// Integer codes in words or bytes along k, with zero points and act-order.
Result<QuantizedTensor> canonicalize_integer_rows(const Checkpoint& checkpoint,
                                                  const Module& module, std::int64_t fused_expert);
Result<QuantizedTensor> canonicalize_gguf(const Checkpoint& checkpoint, const Module& module,
                                          std::int64_t fused_expert);
// GPTQ, AWQ and AutoRound: codes in words (integer_matrix.cpp). Never fused.
Result<QuantizedTensor> canonicalize_integer(const Checkpoint& checkpoint, const Module& module,
                                             std::int64_t fused_expert);

// Codes with a grid of scales beside them, of any granularity.
Result<QuantizedTensor> canonicalize_scaled(const Checkpoint& checkpoint, const Module& module,
                                            std::int64_t fused_expert);

Result<QuantizedTensor> canonicalize_ternary(const Checkpoint& checkpoint, const Module& module,
                                             std::int64_t fused_expert);
Result<QuantizedTensor> canonicalize_bitsandbytes(const Checkpoint& checkpoint,
                                                  const Module& module, std::int64_t fused_expert);

// The tensor of a part. Error not_found names "<module>.<suffix>".
Result<Tensor> part_tensor(const Checkpoint& checkpoint, const Module& module,
                           std::string_view suffix);

// Slice i of the first dimension, sharing the memory.
Tensor first_dim_slice(const Tensor& tensor, std::int64_t i);
// Rows [row, row + count) of a matrix, sharing the memory. Error unsupported when `row` is inside a
// block of rows with one scale.
Result<QuantizedTensor> slice_rows(const QuantizedTensor& tensor, std::int64_t row,
                                   std::int64_t count);
// Columns [column, column + count) in memory of its own. With act-order all scales stay as
// they are, since any column may belong to any group: g_idx points into them. Errors: unsupported
// when the cut is inside a group, a block or a byte of codes (both numbers).
Result<QuantizedTensor> slice_columns(const QuantizedTensor& tensor, std::int64_t column,
                                      std::int64_t count);
// The smallest run of columns that slice_columns can cut at.
std::int64_t column_unit(const QuantizedTensor& tensor);
// Every second row from `first` (0 or 1) of a matrix with an even number of rows, in memory of its
// own. Error unsupported when several rows share a scale that others don't have.
Result<QuantizedTensor> every_second_row(const QuantizedTensor& tensor, std::int64_t first);
// Values of the part "bias": [n], or [experts, n] of a fused module; empty when there is none.
Result<std::vector<float>> read_bias(const Checkpoint& checkpoint, const Module& module,
                                     std::int64_t fused_expert);

}  // namespace fewbit
