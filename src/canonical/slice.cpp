// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "canonical/storage.hpp"

namespace fewbit {
namespace {

Tensor take_rows(const Tensor& tensor, std::int64_t row, std::int64_t count) {
  const auto rows = static_cast<std::uint64_t>(tensor.view.shape.front());
  const std::uint64_t row_bytes = rows == 0 ? 0 : tensor.view.bytes.size() / rows;
  Tensor out = tensor;
  out.view.shape.front() = count;
  out.view.bytes = tensor.view.bytes.subspan(static_cast<std::uint64_t>(row) * row_bytes,
                                             static_cast<std::uint64_t>(count) * row_bytes);
  return out;
}

}  // namespace

Result<Tensor> part_tensor(const Checkpoint& checkpoint, const Module& module,
                           std::string_view suffix) {
  const std::string_view name = module.part(suffix);
  if (name.empty()) {
    return Error{ErrorCode::not_found, fmt::format("tensor {}.{} is missing", module.name, suffix),
                 module.name};
  }
  return checkpoint.tensor(name);
}

Tensor first_dim_slice(const Tensor& tensor, std::int64_t i) {
  Tensor out = take_rows(tensor, i, 1);
  out.view.shape.erase(out.view.shape.begin());
  return out;
}

QuantizedTensor slice_rows(const QuantizedTensor& tensor, std::int64_t row, std::int64_t count) {
  QuantizedTensor out = tensor;
  out.n = count;
  out.codes = take_rows(tensor.codes, row, count);
  if (!tensor.scales.empty()) out.scales = take_rows(tensor.scales, row, count);
  return out;
}

}  // namespace fewbit
