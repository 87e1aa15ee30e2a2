// SPDX-License-Identifier: Apache-2.0
// The grid of groups that scales, zero points and offsets belong to.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include "core/checked.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {

// Groups along an axis of `size` with `each` a group; 0 = one group.
constexpr std::int64_t groups_along(std::int64_t size, std::int64_t each) {
  return each <= 0 ? 1 : ceil_div(size, each);
}

inline std::int64_t grid_rows(const QuantizedTensor& tensor) {
  return tensor.scheme.scale ? groups_along(tensor.n, tensor.scheme.scale->granularity.rows) : 1;
}

// With act-order the scales tell: columns cut from a matrix point into all groups of the whole.
inline std::int64_t grid_columns(const QuantizedTensor& tensor) {
  if (!tensor.scheme.scale) return 1;
  const std::int64_t each = tensor.scheme.scale->granularity.cols;
  const Shape& scales = tensor.scales.view.shape;
  const bool told = tensor.scheme.act_order == ActOrder::group && each > 0 && scales.size() == 2;
  return told ? scales[1] : groups_along(tensor.k, each);
}

// Empty on overflow.
inline std::optional<std::uint64_t> grid_elements(const QuantizedTensor& tensor) {
  return checked_mul(static_cast<std::uint64_t>(grid_rows(tensor)),
                     static_cast<std::uint64_t>(grid_columns(tensor)));
}

// Row of the grid for row i of the matrix.
inline std::int64_t grid_row_of(const QuantizedTensor& tensor, std::int64_t i) {
  const std::int64_t rows = tensor.scheme.scale->granularity.rows;
  return rows <= 0 ? 0 : i / rows;
}

// Column of the grid for column j of the matrix.
inline std::int32_t group_of_column(const QuantizedTensor& tensor, std::int64_t j) {
  if (tensor.scheme.act_order == ActOrder::group) {
    std::int32_t group = 0;
    std::memcpy(&group, tensor.g_idx.view.bytes.data() + j * 4, sizeof(group));
    return group;
  }
  const std::int64_t cols = tensor.scheme.scale->granularity.cols;
  return cols <= 0 ? 0 : static_cast<std::int32_t>(j / cols);
}

}  // namespace fewbit
