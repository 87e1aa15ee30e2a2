// SPDX-License-Identifier: Apache-2.0
// Words of consecutive k with their rows k in another order (act-order) -> tiles. Rows lie
// anywhere, so that some columns of all are taken apart into rows (StripRows) first, which stay in
// the second-level cache; tiles read them from there in their order, while the words of the next
// columns are on their way.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/ordered_blocks.hpp"
#include "layout/padded_matrix.hpp"
#include "layout/place.hpp"
#include "layout/strip_rows.hpp"

namespace fewbit {

template <Layout From, Layout To>
class OrderedStrips {
 public:
  OrderedStrips(const PaddedMatrix& matrix, std::span<const std::byte> words,
                std::span<std::byte> out)
      : matrix_(matrix), words_(words), out_(out) {}
  OrderedStrips(const OrderedStrips&) = delete;
  OrderedStrips& operator=(const OrderedStrips&) = delete;

  // Parts of whole tiles.
  static bool accepts(const PaddedMatrix& matrix) {
    return matrix.from.n / matrix.parts_n % To::tile_n == 0 &&
           matrix.to.n / matrix.parts_n % To::tile_n == 0;
  }

  void move() {
    const std::int64_t part = matrix_.from.n / matrix_.parts_n;
    for (std::int64_t i = 0; i < matrix_.parts_n; ++i) {
      for (std::int64_t n = 0; n < part; n += strip_.n) {
        strip_ = {.n = strip_columns(part - n), .k = matrix_.from.k};
        if (planned_columns_ != strip_.n) plan();
        const std::int64_t to = i * (matrix_.to.n / matrix_.parts_n) + n;
        into_rows_->run_all(words_.data() + (i * part + n) * 4, rows_.data());
        next_ = words_of(i * part + n + strip_.n);
        into_tiles_->run_all(rows_.data(), out_.data() + To::place(matrix_.to, to, 0).byte);
      }
    }
  }

 private:
  using Rows = StripRows<From::bits>;
  static constexpr std::int64_t per_word = 32 / From::bits;
  static constexpr std::int64_t cached_bytes = 1 << 18;

  // A power of two, so that halves of it are moved by blocks.
  std::int64_t strip_columns(std::int64_t left) const {
    auto columns = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(left)));
    while (columns > To::tile_n &&
           Rows::bytes({.n = columns, .k = matrix_.from.k}) > cached_bytes) {
      columns /= 2;
    }
    return columns;
  }

  // Of so many columns, of the rows of one tile or word and as many more as the buffer has room
  // for: what a block costs beside its bytes is the same for all sizes.
  static constexpr Dims largest_block(std::int64_t columns, std::int64_t rows) {
    while (2 * rows * columns * From::bits / 8 <= block_buffer_bytes) rows *= 2;
    return {.n = columns, .k = rows};
  }

  // As many columns as this strip has, from the first one on.
  ReadLater words_of(std::int64_t first) const {
    if (first >= matrix_.from.n) return {};
    return {words_.data() + first * 4, strip_.k / per_word,
            std::min(strip_.n, matrix_.from.n - first) * 4, matrix_.from.n * 4};
  }

  // For strips of the size of this one, in rows_.
  void plan() {
    const std::int64_t row_bytes = Rows::row_bytes(strip_);
    rows_.resize(static_cast<std::size_t>(Rows::bytes(strip_)));
    starts_ = row_starts(matrix_.order, row_bytes);
    ElementMap apart{.bits = From::bits,
                     .source = place_of<From>(matrix_.from),
                     .out = place_of<Rows>(strip_),
                     .ranges = {}};
    const Dims block = largest_block(std::min(strip_.n, Rows::block), per_word);
    apart.ranges = {{.first = {}, .count = strip_, .block = block}};
    apart.read_soon = true;
    into_rows_.emplace(std::move(apart), packing_isa());
    const PaddedMatrix tiles{.from = strip_, .to = matrix_.to, .parts_n = 1, .order = {}};
    const Dims tile_block = largest_block(std::min(strip_.n, tile_row<To>().n), To::tile_k);
    ElementMap in_order = map_ordered<Rows, To>(tiles, starts_, row_bytes, tile_block);
    in_order.rows.later = &next_;
    into_tiles_.emplace(std::move(in_order), packing_isa());
    planned_columns_ = strip_.n;
  }

  const PaddedMatrix& matrix_;
  std::span<const std::byte> words_;
  std::span<std::byte> out_;
  Dims strip_;
  std::int64_t planned_columns_ = 0;
  std::vector<std::byte> rows_;
  std::vector<std::int64_t> starts_;
  ReadLater next_;
  std::optional<ElementMover> into_rows_;
  std::optional<ElementMover> into_tiles_;
};

}  // namespace fewbit
