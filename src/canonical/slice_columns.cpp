// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "canonical/code_row.hpp"
#include "canonical/gguf_matrix.hpp"
#include "canonical/grid.hpp"
#include "canonical/storage.hpp"
#include "checkpoint/gguf_types.hpp"
#include "core/checked.hpp"

namespace fewbit {
namespace {

struct Window {
  std::uint64_t row_bytes = 0;  // of the source
  std::uint64_t first = 0;
  std::uint64_t bytes = 0;
};

Result<Tensor> take_columns(const Tensor& tensor, std::int64_t rows, Shape shape,
                            const Window& window) {
  FEWBIT_TRY(OwnedTensor out,
             allocate_tensor(DType::u8, {rows, static_cast<std::int64_t>(window.bytes)}));
  for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(rows); ++row) {
    const auto from =
        tensor.view.bytes.subspan(row * window.row_bytes + window.first, window.bytes);
    std::ranges::copy(from, out.bytes.subspan(row * window.bytes).begin());
  }
  out.tensor.view.dtype = tensor.view.dtype;
  out.tensor.view.shape = std::move(shape);
  return std::move(out.tensor);
}

std::int64_t block_elements(const Scheme& scheme) {
  const auto types = gguf_types_of(*scheme.ggml_type);
  return !types.empty() && types.front().elements > 0 ? types.front().elements : 1;
}

Result<Tensor> take_codes(const QuantizedTensor& tensor, std::int64_t column, std::int64_t count) {
  Window window;
  Shape shape{tensor.n, count};
  if (tensor.scheme.ggml_type) {
    const auto blocks = static_cast<std::uint64_t>(tensor.k / block_elements(tensor.scheme));
    window.row_bytes = tensor.codes.view.bytes.size() / static_cast<std::uint64_t>(tensor.n);
    const std::uint64_t block = window.row_bytes / std::max<std::uint64_t>(blocks, 1);
    const auto of = [&](std::int64_t columns) {
      return static_cast<std::uint64_t>(columns / block_elements(tensor.scheme)) * block;
    };
    window.first = of(column);
    window.bytes = of(count);
    shape.back() = static_cast<std::int64_t>(window.bytes);
  } else {
    window.row_bytes = code_row_bytes(tensor.scheme.weight, tensor.k);
    window.first = code_row_bytes(tensor.scheme.weight, column);
    window.bytes = code_row_bytes(tensor.scheme.weight, count);
  }
  return take_columns(tensor.codes, tensor.n, std::move(shape), window);
}

// Scales, zero points and offsets of the groups that the columns belong to: with act-order that may
// be all of them.
Result<void> take_grids(const QuantizedTensor& tensor, QuantizedTensor& out, std::int64_t column,
                        std::int64_t count) {
  if (!tensor.scheme.scale || tensor.scheme.act_order == ActOrder::group) return {};
  const std::int64_t each = tensor.scheme.scale->granularity.cols;
  if (each <= 0) return {};
  const std::int64_t rows = grid_rows(tensor);
  const std::int64_t first = column / each;
  const std::int64_t groups = ceil_div(count, each);
  for (Tensor* part : {&out.scales, &out.zero_points, &out.offsets}) {
    if (part->empty()) continue;
    const auto width = static_cast<std::uint64_t>(dtype_bits(part->view.dtype)) / 8;
    const Window window{.row_bytes = static_cast<std::uint64_t>(grid_columns(tensor)) * width,
                        .first = static_cast<std::uint64_t>(first) * width,
                        .bytes = static_cast<std::uint64_t>(groups) * width};
    FEWBIT_TRY(*part, take_columns(*part, rows, {rows, groups}, window));
  }
  return {};
}

// A vector with a value a column.
void take_range(Tensor& vector, std::int64_t column, std::int64_t count) {
  if (vector.empty()) return;
  const auto width = static_cast<std::uint64_t>(dtype_bits(vector.view.dtype)) / 8;
  vector.view.bytes = vector.view.bytes.subspan(static_cast<std::uint64_t>(column) * width,
                                                static_cast<std::uint64_t>(count) * width);
  vector.view.shape = {count};
}

}  // namespace

std::int64_t column_unit(const QuantizedTensor& tensor) {
  if (tensor.scheme.ggml_type) return block_elements(tensor.scheme);
  const int bits = dtype_bits(tensor.scheme.weight);
  const std::int64_t of_byte = 8 / std::gcd(8, bits);
  const bool grouped = tensor.scheme.scale && tensor.scheme.act_order != ActOrder::group &&
                       tensor.scheme.scale->granularity.cols > 0;
  return std::lcm(of_byte, grouped ? tensor.scheme.scale->granularity.cols : std::int64_t{1});
}

Result<QuantizedTensor> slice_columns(const QuantizedTensor& tensor, std::int64_t column,
                                      std::int64_t count) {
  const std::int64_t unit = column_unit(tensor);
  const bool ends = column + count == tensor.k;
  if (column < 0 || count < 1 || column + count > tensor.k || column % unit != 0 ||
      (count % unit != 0 && !ends)) {
    return Error{ErrorCode::unsupported,
                 fmt::format("columns [{}, {}) of {}, expected multiples of {}", column,
                             column + count, tensor.k, unit),
                 ""};
  }
  QuantizedTensor out = tensor;
  out.k = count;
  FEWBIT_TRY(out.codes, take_codes(tensor, column, count));
  FEWBIT_TRY(take_grids(tensor, out, column, count));
  take_range(out.g_idx, column, count);
  take_range(out.pre_quant_scale, column, count);
  return out;
}

}  // namespace fewbit
