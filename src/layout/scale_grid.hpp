// SPDX-License-Identifier: Apache-2.0
// Column orders of the scale grids that W4A16 kernels read, and the byte-scale grid as a layout.
//
// Scales lie by groups of k, then by n in a permuted order:
//   grouped   blocks of 64: column n moves to 8 * (x%8) + x/8, x = n%64
//   single    blocks of 32: column n moves to 8 * ((x%8)/2) + 2 * (x/8) + x%2, x = n%32
//             (one group over all of k)
// Byte scales also exchange positions 1 and 2 of every four, the order in which the kernels widen
// four bytes to two pairs.
#pragma once

#include <cassert>
#include <span>

#include "layout/place.hpp"

namespace fewbit {

enum class ScaleOrder { grouped, single };

// The engines' rule: several groups along k, or one (group_size -1, or not below k).
FEWBIT_HD constexpr ScaleOrder scale_order(std::int64_t k, std::int64_t group_size) {
  return group_size != -1 && group_size < k ? ScaleOrder::grouped : ScaleOrder::single;
}

FEWBIT_HD constexpr std::int64_t grouped_column(std::int64_t n) {
  return n / 64 * 64 + 8 * (n % 8) + n % 64 / 8;
}
FEWBIT_HD constexpr std::int64_t grouped_source(std::int64_t column) {
  return grouped_column(column);  // an 8 x 8 transpose is its own inverse
}

FEWBIT_HD constexpr std::int64_t single_column(std::int64_t n) {
  return n / 32 * 32 + 8 * (n % 8 / 2) + 2 * (n % 32 / 8) + n % 2;
}
FEWBIT_HD constexpr std::int64_t single_source(std::int64_t column) {
  return column / 32 * 32 + 8 * (column % 8 / 2) + 2 * (column % 32 / 8) + column % 2;
}

// Exchanges positions 1 and 2 of every four.
FEWBIT_HD constexpr std::int64_t swap12(std::int64_t column) {
  return (column & ~std::int64_t{3}) | (column & 1) << 1 | (column >> 1 & 1);
}

FEWBIT_HD constexpr std::int64_t scale_column(ScaleOrder order, std::int64_t n) {
  return order == ScaleOrder::grouped ? grouped_column(n) : single_column(n);
}
FEWBIT_HD constexpr std::int64_t scale_source(ScaleOrder order, std::int64_t column) {
  return order == ScaleOrder::grouped ? grouped_source(column) : single_source(column);
}

// One byte a scale. dims.n = columns n of the weight, dims.k = groups along k.
// Byte of (n, group) = group * n_total + swap12(scale_column(n)).
template <ScaleOrder order>
struct ByteScaleGrid {
  static constexpr int bits = 8;
  static constexpr std::int64_t block = order == ScaleOrder::grouped ? 64 : 32;

  FEWBIT_HD static constexpr std::int64_t column(std::int64_t n) {
    return swap12(scale_column(order, n));
  }
  // The n whose scale lies in this column.
  FEWBIT_HD static constexpr std::int64_t source(std::int64_t col) {
    return scale_source(order, swap12(col));
  }

  FEWBIT_HD static constexpr bool accepts(Dims d) { return d.n > 0 && d.k > 0 && d.n % block == 0; }
  FEWBIT_HD static constexpr std::int64_t bytes(Dims d) { return d.n * d.k; }
  FEWBIT_HD static constexpr std::int64_t spare_bits(Dims /*dims*/) { return 0; }
  FEWBIT_HD static constexpr Place place(Dims d, std::int64_t n, std::int64_t k) {
    return {.byte = k * d.n + column(n), .bit = 0};
  }
  FEWBIT_HD static constexpr Element inverse(Dims d, Place p) {
    return {.n = source(p.byte % d.n), .k = p.byte / d.n};
  }
};

using GroupedByteScales = ByteScaleGrid<ScaleOrder::grouped>;
using SingleByteScales = ByteScaleGrid<ScaleOrder::single>;

// Permutes one row of scales as the engines do: `in` is padded with zeros to a multiple of 64, then
// permuted, then cut to out.size(). Where out is shorter than the padded row, real scales are lost
// and zeros take their place; the kernels read such rows nowhere.
template <class T>
void permute_scale_row(ScaleOrder order, std::span<const T> in, std::span<T> out) {
  for (std::size_t p = 0; p < out.size(); ++p) {
    const auto n = static_cast<std::size_t>(scale_source(order, static_cast<std::int64_t>(p)));
    out[p] = n < in.size() ? in[n] : T{};
  }
}

}  // namespace fewbit
