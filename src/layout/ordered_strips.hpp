// SPDX-License-Identifier: Apache-2.0
// Words of consecutive k with their rows k in another order (act-order) -> tiles. Rows lie
// anywhere, so that some columns of all are taken apart into rows (StripRows) first, which stay in
// the caches.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "layout/element_mover.hpp"
#include "layout/move_in_chunks.hpp"
#include "layout/padded_matrix.hpp"
#include "layout/place.hpp"
#include "layout/strip_rows.hpp"

namespace fewbit {

template <Layout From, Layout To>
class OrderedStrips {
 public:
  OrderedStrips(const PaddedMatrix& matrix, std::span<const std::byte> words,
                std::span<std::byte> out)
      : matrix_(matrix), words_(words), out_(out), into_tiles_(matrix.to) {}

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
        take_apart(i * part + n);
        put_in_order({.n = i * (matrix_.to.n / matrix_.parts_n) + n, .k = 0});
      }
    }
  }

 private:
  using Rows = StripRows<From::bits>;
  static constexpr std::int64_t chunk_rows = 64;
  static constexpr std::int64_t cached_bytes = 1 << 18;
  static constexpr std::int64_t rows_ahead = 8;

  // A power of two, so that halves of it are moved by blocks.
  std::int64_t strip_columns(std::int64_t left) const {
    auto columns = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(left)));
    while (columns > To::tile_n &&
           Rows::bytes({.n = columns, .k = matrix_.from.k}) > cached_bytes) {
      columns /= 2;
    }
    return columns;
  }

  // The columns of the strip from the first one on.
  void take_apart(std::int64_t first) {
    if (!into_rows_ || strip_.n != planned_columns_) {
      ElementMap map{.bits = From::bits,
                     .source = place_of<From>(matrix_.from),
                     .out = place_of<Rows>(strip_),
                     .ranges = {}};
      constexpr std::int64_t per_word = 32 / From::bits;
      map.ranges = {{.first = {}, .count = strip_, .block = {.n = strip_.n, .k = per_word}}};
      map.ranges.front().block.n = std::min(strip_.n, Rows::block);
      map.read_soon = true;
      into_rows_.emplace(std::move(map), packing_isa());
      planned_columns_ = strip_.n;
    }
    rows_.resize(static_cast<std::size_t>(Rows::bytes(strip_)));
    into_rows_->run_all(words_.data() + first * 4, rows_.data());
  }

  void put_in_order(Element to) {
    const auto bytes = static_cast<std::size_t>(Rows::row_bytes(strip_));
    chunk_.resize(static_cast<std::size_t>(chunk_rows) * bytes);
    for (; to.k < strip_.k; to.k += chunk_rows) {
      const std::int64_t count = std::min(chunk_rows, strip_.k - to.k);
      for (std::int64_t i = 0; i < count; ++i) {
        fetch(to.k + i + rows_ahead);
        copy_row(row(to.k + i), bytes, chunk_.data() + static_cast<std::size_t>(i) * bytes);
      }
      into_tiles_.move({.n = strip_.n, .k = count}, 1, to, chunk_.data(), out_.data());
    }
  }

  // Rows are short: a call for each costs as much as its bytes.
  static void copy_row(const std::byte* from, std::size_t bytes, std::byte* to) {
    std::size_t at = 0;
    for (; at + 64 <= bytes; at += 64) std::memcpy(to + at, from + at, 64);
    if (at < bytes) std::memcpy(to + at, from + at, bytes - at);
  }

  const std::byte* row(std::int64_t k) const {
    return rows_.data() + matrix_.order[static_cast<std::size_t>(k)] * Rows::row_bytes(strip_);
  }
  void fetch(std::int64_t k) const {
    if (k >= strip_.k) return;
    for (std::int64_t at = 0; at < Rows::row_bytes(strip_); at += 64) {
      __builtin_prefetch(row(k) + at);
    }
  }

  const PaddedMatrix& matrix_;
  std::span<const std::byte> words_;
  std::span<std::byte> out_;
  Dims strip_;
  std::optional<ElementMover> into_rows_;
  std::int64_t planned_columns_ = 0;
  ChunkMover<Rows, To> into_tiles_;
  std::vector<std::byte> rows_;
  std::vector<std::byte> chunk_;
};

}  // namespace fewbit
