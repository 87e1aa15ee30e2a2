// SPDX-License-Identifier: Apache-2.0
#include "layout/swap_halves.hpp"

#include <string>
#include <utility>

#include "layout/row_order.hpp"

namespace fewbit {
namespace {

Error bad(std::string what) { return {ErrorCode::invalid_argument, std::move(what), ""}; }

Result<std::size_t> index_of(const TensorView& tensor, std::int64_t dim) {
  const auto rank = static_cast<std::int64_t>(tensor.shape.size());
  const std::int64_t index = dim < 0 ? dim + rank : dim;
  if (index >= 0 && index < rank) return static_cast<std::size_t>(index);
  return bad("dimension " + std::to_string(dim) + " of shape " + shape_text(tensor.shape));
}

}  // namespace

Result<Tensor> swap_halves(const TensorView& tensor, std::int64_t dim) {
  FEWBIT_TRY(const std::size_t index, index_of(tensor, dim));
  const std::int64_t extent = tensor.shape[index];
  if (extent % 2 != 0) {
    return bad("extent " + std::to_string(extent) + " of dimension " + std::to_string(dim) +
               " has no halves, expected an even one");
  }
  FEWBIT_TRY(const std::uint64_t bytes, tensor_bytes(tensor.dtype, tensor.shape));
  if (tensor.bytes.size() != bytes) {
    return bad("holds " + std::to_string(tensor.bytes.size()) + " bytes, expected " +
               std::to_string(bytes) + " for shape " + shape_text(tensor.shape));
  }
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(tensor.dtype, tensor.shape));
  if (bytes == 0) return out.tensor;
  std::size_t blocks = 1;  // each holds the whole extent
  for (std::size_t i = 0; i < index; ++i) blocks *= static_cast<std::size_t>(tensor.shape[i]);
  const RowRotation rows{.rows = extent, .shift = extent / 2};
  const std::size_t block_bytes = out.bytes.size() / blocks;
  if (block_bytes % static_cast<std::size_t>(extent) != 0) {
    return bad("rows of shape " + shape_text(tensor.shape) + " are no whole bytes");
  }
  for (std::size_t at = 0; at < out.bytes.size(); at += block_bytes) {
    reorder_rows(rows, tensor.bytes.subspan(at, block_bytes), out.bytes.subspan(at, block_bytes));
  }
  return out.tensor;
}

Result<WeightAndScale> reorder_w1w3_to_w3w1(const TensorView& weight, const TensorView& scale,
                                            std::int64_t dim) {
  FEWBIT_TRY(const std::size_t in_weight, index_of(weight, dim));
  FEWBIT_TRY(const std::size_t in_scale, index_of(scale, dim));
  if (weight.shape[in_weight] != scale.shape[in_scale]) {
    return bad("dimension " + std::to_string(dim) + " of the scale has extent " +
               std::to_string(scale.shape[in_scale]) + ", expected that of the weight, " +
               std::to_string(weight.shape[in_weight]));
  }
  WeightAndScale result;
  FEWBIT_TRY(result.weight, swap_halves(weight, dim));
  FEWBIT_TRY(result.scale, swap_halves(scale, dim));
  return result;
}

}  // namespace fewbit
