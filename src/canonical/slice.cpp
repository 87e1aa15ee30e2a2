// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "canonical/storage.hpp"
#include "core/checked.hpp"

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

Result<Tensor> take_every_second(const Tensor& tensor, std::int64_t first) {
  const auto rows = static_cast<std::size_t>(tensor.view.shape.front());
  const std::size_t row_bytes = tensor.view.bytes.size() / std::max<std::size_t>(rows, 1);
  Shape shape = tensor.view.shape;
  shape.front() /= 2;
  FEWBIT_TRY(OwnedTensor out, allocate_tensor(tensor.view.dtype, std::move(shape)));
  for (std::size_t i = 0; i < rows / 2; ++i) {
    const auto from =
        tensor.view.bytes.subspan((2 * i + static_cast<std::size_t>(first)) * row_bytes, row_bytes);
    std::copy(from.begin(), from.end(),
              out.bytes.begin() + static_cast<std::ptrdiff_t>(i * row_bytes));
  }
  return std::move(out.tensor);
}

// Rows of the matrix that share a row of scales; 0 = all.
std::int64_t scale_rows(const QuantizedTensor& tensor) {
  return tensor.scheme.scale ? tensor.scheme.scale->granularity.rows : 0;
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

Result<QuantizedTensor> slice_rows(const QuantizedTensor& tensor, std::int64_t row,
                                   std::int64_t count) {
  QuantizedTensor out = tensor;
  out.n = count;
  out.codes = take_rows(tensor.codes, row, count);
  const std::int64_t each = scale_rows(tensor);
  if (each == 0) return out;
  if (row % each != 0) {
    return Error{
        ErrorCode::unsupported,
        fmt::format("rows from {} begin inside a block of {} rows with one scale", row, each), ""};
  }
  for (Tensor* part : {&out.scales, &out.zero_points, &out.offsets}) {
    if (!part->empty()) *part = take_rows(*part, row / each, ceil_div(count, each));
  }
  return out;
}

Result<QuantizedTensor> every_second_row(const QuantizedTensor& tensor, std::int64_t first) {
  QuantizedTensor out = tensor;
  out.n = tensor.n / 2;
  FEWBIT_TRY(out.codes, take_every_second(tensor.codes, first));
  const std::int64_t each = scale_rows(tensor);
  if (each == 0) return out;
  if (each != 1) {
    return Error{
        ErrorCode::unsupported,
        fmt::format("gate and up rows in turn, but a block of {} rows has one scale", each), ""};
  }
  for (Tensor* part : {&out.scales, &out.zero_points, &out.offsets}) {
    if (part->empty()) continue;
    FEWBIT_TRY(*part, take_every_second(*part, first));
  }
  return out;
}

}  // namespace fewbit
