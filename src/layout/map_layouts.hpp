// SPDX-License-Identifier: Apache-2.0
// The element maps of two layouts of one matrix.
#pragma once

#include <cstdint>
#include <span>

#include "layout/element_mover.hpp"
#include "layout/padded_matrix.hpp"
#include "layout/place.hpp"
#include "layout/row_order.hpp"

namespace fewbit {

template <Layout L>
std::function<Place(std::int64_t, std::int64_t)> place_of(Dims dims) {
  return [dims](std::int64_t n, std::int64_t k) { return L::place(dims, n, k); };
}

// Element (n, k) in both.
template <Layout From, Layout To>
ElementMap map_layouts(Dims dims, Dims block) {
  static_assert(From::bits == To::bits);
  return {.bits = To::bits,
          .source = place_of<From>(dims),
          .out = place_of<To>(dims),
          .ranges = {{.first = {}, .count = dims, .block = block}}};
}

// Row n of the result is row rows.source(n) of the source.
template <Layout From, Layout To>
ElementMap map_rotated(RowRotation rows, Dims dims, Dims block) {
  ElementMap map = map_layouts<From, To>(dims, block);
  map.source = [rows, dims](std::int64_t n, std::int64_t k) {
    return From::place(dims, rows.source(n), k);
  };
  const std::int64_t first = dims.n - rows.shift;  // of the rows that come from the front
  map.ranges = {{.first = {}, .count = {.n = first, .k = dims.k}, .block = block},
                {.first = {.n = first, .k = 0}, .count = {rows.shift, dims.k}, .block = block}};
  return map;
}

// The stored part of a padded matrix, whose order is left aside; padding keeps its bits.
template <Layout From, Layout To>
ElementMap map_padded(const PaddedMatrix& matrix, Dims block) {
  static_assert(From::bits == To::bits);
  ElementMap map{.bits = To::bits, .source = {}, .out = place_of<To>(matrix.to), .ranges = {}};
  const std::int64_t part = matrix.to.n / matrix.parts_n;
  const std::int64_t stored = matrix.from.n / matrix.parts_n;
  map.source = [from = matrix.from, part, stored](std::int64_t n, std::int64_t k) {
    return From::place(from, n / part * stored + n % part, k);
  };
  for (std::int64_t i = 0; i < matrix.parts_n; ++i) {
    map.ranges.push_back(
        {.first = {.n = i * part, .k = 0}, .count = {stored, matrix.from.k}, .block = block});
  }
  return map;
}

// The same with the rows of a source of rows k in an order. starts: row_starts(), kept by the
// caller.
template <Layout From, Layout To>
ElementMap map_ordered(const PaddedMatrix& matrix, std::span<const std::int64_t> starts,
                       std::int64_t row_bytes, Dims block) {
  ElementMap map = map_padded<From, To>(matrix, block);
  map.rows = {.starts = starts, .row_bytes = row_bytes};
  return map;
}

// Blocks of a layout of tiles whose rows run along n, as those of the source do: one row of tiles,
// as many as the buffer of a mover holds.
template <Layout To>
constexpr Dims tile_row() {
  return {.n = block_buffer_bytes * 8 / To::bits / To::tile_k, .k = To::tile_k};
}

}  // namespace fewbit
