// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_xpu.hpp"

#include <string>
#include <utility>

#include "layout/check_tensor.hpp"
#include "layout/column_major.hpp"
#include "layout/gptq_words.hpp"
#include "layout/repack_experts.hpp"
#include "layout/row_major.hpp"

namespace fewbit {
namespace {

Error bad(std::string where, std::string what) {
  return {ErrorCode::invalid_argument, std::move(what), std::move(where)};
}

}  // namespace

Result<XpuResult> prepare_xpu(const XpuMatrix& matrix, Dims dims, std::int64_t group_size,
                              Executor& executor) {
  FEWBIT_TRY(check_extent("n", dims.n));
  FEWBIT_TRY(check_extent("k", dims.k));
  FEWBIT_TRY(check_extent("group_size", group_size));
  const Shape& shape = matrix.words.shape;
  if (shape.size() != 3 || shape[0] <= 0) {
    return bad("words",
               "shape " + shape_text(shape) + ", expected [experts, k/8, n] and an expert");
  }
  if (dims.k % 8 != 0 || dims.k % group_size != 0) {
    return bad("words", "k is " + std::to_string(dims.k) + ", expected a multiple of 8 and of " +
                            std::to_string(group_size) + ", the group size");
  }
  const std::int64_t experts = shape[0];
  const Dims groups{.n = dims.n, .k = dims.k / group_size};
  const DType dtype = matrix.scales.dtype;
  if (dtype != DType::f16 && dtype != DType::bf16) {
    return bad("scales", "dtype " + std::string(dtype_name(dtype)) + ", expected f16 or bf16");
  }
  FEWBIT_TRY(check_tensor("words", matrix.words, DType::i32, {experts, dims.k / 8, dims.n}));
  FEWBIT_TRY(check_tensor("scales", matrix.scales, dtype, {experts, groups.k, dims.n}));
  FEWBIT_TRY(OwnedTensor codes, allocate_tensor(DType::u8, {experts, dims.n, dims.k / 2}));
  FEWBIT_TRY(OwnedTensor scales, allocate_tensor(dtype, {experts, dims.n, groups.k}));
  constexpr Dims block{.n = 32, .k = 256};  // whole lines of rows in pairs
  repack_experts<GptqWords<4>, RowMajor<4>>(experts, dims, matrix.words.bytes, codes.bytes,
                                            executor, block);
  repack_experts<ColumnMajor<16>, RowMajor<16>>(experts, groups, matrix.scales.bytes, scales.bytes,
                                                executor);
  return XpuResult{.codes = codes.tensor, .scales = scales.tensor};
}

}  // namespace fewbit
