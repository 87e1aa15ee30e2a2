// SPDX-License-Identifier: Apache-2.0
// Words of consecutive k with their rows k in another order (act-order) -> tiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "layout/move_in_chunks.hpp"
#include "layout/pack_fast_words.hpp"
#include "layout/padded_matrix.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Rows lie anywhere, so that some columns of all are copied close together first. Each part of the
// result begins with a tile.
template <Layout From, Layout To>
class OrderedStrips {
 public:
  OrderedStrips(const PaddedMatrix& matrix, std::span<const std::byte> words,
                std::span<std::byte> out)
      : matrix_(matrix),
        words_(words),
        out_(out),
        mover_(matrix.to),
        order_(word_kernels(packing_isa()).order) {}

  static bool accepts(const PaddedMatrix& matrix) {
    return matrix.to.n / matrix.parts_n % To::tile_n == 0;
  }

  void move() {
    const std::int64_t stored_part = matrix_.from.n / matrix_.parts_n;
    const std::int64_t columns = strip_columns();
    for (std::int64_t part = 0; part < matrix_.parts_n; ++part) {
      for (std::int64_t n = 0; n < stored_part; n += columns) {
        move_strip(part * stored_part + n, std::min(columns, stored_part - n),
                   part * (matrix_.to.n / matrix_.parts_n) + n);
      }
    }
  }

 private:
  static constexpr std::int64_t per_word = 32 / From::bits;
  static constexpr std::int64_t chunk_rows = 128;  // k
  static constexpr std::int64_t most_columns = 256;
  static constexpr std::int64_t cached_bytes = 1 << 19;

  // As many as a second-level cache holds of all rows.
  std::int64_t strip_columns() const {
    std::int64_t columns = most_columns;
    while (columns > To::tile_n && columns * 4 * (matrix_.from.k / per_word) > cached_bytes) {
      columns /= 2;
    }
    return columns;
  }

  void move_strip(std::int64_t first, std::int64_t count, std::int64_t to_n) {
    const std::int64_t columns = (count + order_columns - 1) / order_columns * order_columns;
    const std::int64_t rows = matrix_.from.k / per_word;
    stored_.resize(static_cast<std::size_t>(rows * columns));
    chunk_.resize(static_cast<std::size_t>(chunk_rows / per_word * columns));
    for (std::int64_t row = 0; row < rows; ++row) {
      std::memcpy(stored_.data() + row * columns,
                  words_.data() + (row * matrix_.from.n + first) * 4,
                  static_cast<std::size_t>(count) * 4);
    }
    for (std::int64_t k = 0; k < matrix_.from.k; k += chunk_rows) {
      const std::int64_t taken = std::min(chunk_rows, matrix_.from.k - k);
      order_({.source = stored_.data(),
              .out = chunk_.data(),
              .columns = columns,
              .order = matrix_.order.data() + k,
              .rows = taken / per_word,
              .bits = From::bits});
      move_chunk({.n = columns, .k = taken}, count, {.n = to_n, .k = k});
    }
  }

  // `columns` of the chunk, the last ones of a part with what belongs to none.
  void move_chunk(Dims chunk, std::int64_t columns, Element to) {
    const auto* const from = reinterpret_cast<const std::byte*>(chunk_.data());
    if (chunk.n == columns) return mover_.move(chunk, 1, to, from, out_.data());
    for (std::int64_t row = 0; row < chunk.k / per_word; ++row) {
      std::memmove(chunk_.data() + row * columns, chunk_.data() + row * chunk.n,
                   static_cast<std::size_t>(columns) * 4);
    }
    mover_.move({.n = columns, .k = chunk.k}, 1, to, from, out_.data());
  }

  const PaddedMatrix& matrix_;
  std::span<const std::byte> words_;
  std::span<std::byte> out_;
  ChunkMover<From, To> mover_;
  void (*order_)(const OrderWords&);
  std::vector<std::uint32_t> stored_;
  std::vector<std::uint32_t> chunk_;
};

}  // namespace fewbit
