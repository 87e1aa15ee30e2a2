// SPDX-License-Identifier: Apache-2.0
#include "canonical/column_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "canonical/grid.hpp"

namespace fewbit {

Result<std::vector<std::int32_t>> column_order(const QuantizedTensor& tensor) {
  const std::int64_t each = tensor.scheme.scale->granularity.cols;
  const std::int64_t groups = grid_columns(tensor);
  if (groups != groups_along(tensor.k, each)) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("scales of {} groups, expected {} for {} columns in groups of {}",
                             groups, groups_along(tensor.k, each), tensor.k, each),
                 ""};
  }
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(groups));
  for (std::int64_t j = 0; j < tensor.k; ++j) {
    const std::int32_t group = group_of_column(tensor, j);
    if (group < 0 || group >= groups) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("g_idx[{}] is {}, expected 0 to {}", j, group, groups - 1), ""};
    }
    ++sizes[static_cast<std::size_t>(group)];
  }
  const auto odd = std::ranges::find_if(sizes, [&](std::int64_t size) { return size != each; });
  if (odd != sizes.end()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("group {} of the act-order has {} columns, expected {}",
                             odd - sizes.begin(), *odd, each),
                 ""};
  }
  std::vector<std::int32_t> order(static_cast<std::size_t>(tensor.k));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {},
                           [&](std::int32_t column) { return group_of_column(tensor, column); });
  return order;
}

Result<void> check_order(std::span<const std::int32_t> order, const std::string& name,
                         const std::string& where) {
  std::vector<bool> seen(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto column = static_cast<std::size_t>(order[i]);
    if (order[i] < 0 || column >= order.size() || seen[column]) {
      return Error{ErrorCode::corrupt,
                   fmt::format("{}[{}] is {}, expected each of 0 to {} once", name, i, order[i],
                               order.size() - 1),
                   where};
    }
    seen[column] = true;
  }
  return {};
}

std::vector<std::int32_t> inverse_order(const std::vector<std::int32_t>& order) {
  std::vector<std::int32_t> places(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    places[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
  return places;
}

std::vector<std::uint8_t> order_codes(int bits, std::int64_t n, std::span<const std::byte> codes,
                                      const std::vector<std::int32_t>& order) {
  const std::size_t row_bytes = order.size() * static_cast<std::size_t>(bits) / 8;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(n) * row_bytes);
  for (std::size_t row = 0; row < static_cast<std::size_t>(n); ++row) {
    const std::span<const std::byte> from = codes.subspan(row * row_bytes, row_bytes);
    std::uint8_t* to = out.data() + row * row_bytes;
    const auto code = [&](std::size_t i) {
      const auto column = static_cast<std::size_t>(order[i]);
      if (bits == 8) return std::to_integer<unsigned>(from[column]);
      return std::to_integer<unsigned>(from[column / 2]) >> (column % 2 * 4) & 15U;
    };
    for (std::size_t i = 0; i < row_bytes; ++i) {
      to[i] = static_cast<std::uint8_t>(bits == 8 ? code(i) : code(2 * i) | code(2 * i + 1) << 4U);
    }
  }
  return out;
}

}  // namespace fewbit
