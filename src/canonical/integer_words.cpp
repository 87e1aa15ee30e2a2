// SPDX-License-Identifier: Apache-2.0
#include "canonical/integer_words.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <utility>

#include "core/bit_stream.hpp"
#include "core/checked.hpp"
#include "layout/awq_words.hpp"
#include "layout/element_mover.hpp"
#include "layout/map_layouts.hpp"
#include "layout/one_element.hpp"

namespace fewbit {
namespace {

// Both sides of a transposition stay in the nearest cache within a tile.
constexpr std::size_t tile = 32;
// Nibble of an AWQ word that holds column j of its eight.
constexpr std::array<unsigned, 8> awq_nibble = {0, 4, 1, 5, 2, 6, 3, 7};

std::uint32_t load_word(std::span<const std::byte> bytes, std::size_t index) {
  std::uint32_t word = 0;
  std::memcpy(&word, bytes.data() + index * sizeof(word), sizeof(word));
  return word;
}

// Calls body(row_begin, row_end, column_begin, column_end) for the tiles of a matrix.
template <class Body>
void for_tiles(std::size_t rows, std::size_t columns, Body body) {
  for (std::size_t r = 0; r < rows; r += tile) {
    for (std::size_t c = 0; c < columns; c += tile) {
      body(r, std::min(r + tile, rows), c, std::min(c + tile, columns));
    }
  }
}

using PlaceOf = std::function<Place(std::int64_t n, std::int64_t k)>;

struct RowsFromWords {
  int bits;  // of what is moved
  PlaceOf source;
  Dims count;
  Dims block;
};

void move_to_rows(const RowsFromWords& move, std::span<const std::byte> words,
                  std::size_t row_bytes, std::span<std::byte> rows) {
  ElementMap map;
  map.bits = move.bits;
  map.read_soon = true;
  map.source = move.source;
  map.out = [row_bits = static_cast<std::int64_t>(8 * row_bytes), bits = move.bits](
                std::int64_t n, std::int64_t k) { return place_at(n * row_bits + k * bits); };
  map.ranges = {{.first = {}, .count = move.count, .block = move.block}};
  ElementMover(std::move(map), packing_isa()).run_all(words.data(), rows.data());
}

}  // namespace

void rows_from_words_k(std::span<const std::byte> words, MatrixSize size, std::size_t row_bytes,
                       std::span<std::byte> rows) {
  const std::int64_t n = size.columns;
  const auto whole = static_cast<std::int64_t>(row_bytes / 4);
  move_to_rows({.bits = 32,
                .source = [n](std::int64_t row,
                              std::int64_t word) { return Place{.byte = 4 * (word * n + row)}; },
                .count = {.n = n, .k = whole},
                .block = {.n = 64, .k = 8}},
               words, row_bytes, rows);
  // The last word of a row may hold bits behind its end.
  const std::size_t left = row_bytes % 4;
  if (left == 0) return;
  for (std::size_t row = 0; row < static_cast<std::size_t>(n); ++row) {
    const std::size_t word = static_cast<std::size_t>(whole * n) + row;
    std::memcpy(rows.data() + (row + 1) * row_bytes - left, words.data() + 4 * word, left);
  }
}

void rows_from_words_n(std::span<const std::byte> words, std::int64_t n, std::int64_t k,
                       std::span<std::byte> rows) {
  const auto row_bytes = static_cast<std::size_t>(ceil_div(k, std::int64_t{2}));
  // Half of the last byte may be no column's.
  for (std::size_t end = row_bytes; k % 2 != 0 && end <= rows.size(); end += row_bytes) {
    rows[end - 1] = std::byte{0};
  }
  move_to_rows({.bits = 4,
                .source = place_of<AwqWords<4>>({.n = round_up(n, std::int64_t{8}), .k = k}),
                .count = {.n = n, .k = k},
                .block = {.n = 128, .k = 64}},
               words, row_bytes, rows);
}

void rows_from_shorts_gemv(std::span<const std::byte> shorts, std::int64_t n, std::int64_t k,
                           std::span<std::byte> rows) {
  const auto columns = static_cast<std::size_t>(k);
  const std::size_t row_bytes = columns / 2;
  std::fill(rows.begin(), rows.end(), std::byte{0});
  for (std::size_t quad = 0; quad < static_cast<std::size_t>(n) / 4; ++quad) {
    for (std::size_t at = 0; at < columns; ++at) {
      std::uint16_t word = 0;
      std::memcpy(&word, shorts.data() + 2 * (quad * columns + at), sizeof(word));
      const std::size_t t = at % 64;
      const std::size_t row = 4 * quad + t / 16;
      for (std::size_t i = 0; i < 4; ++i) {
        const std::size_t p = 4 * (t % 16) + i;
        const std::size_t column =
            at - t + 32 * (p / 32) + 8 * (p % 4) + 2 * (p % 32 / 8) + p % 8 / 4;
        const auto code = static_cast<unsigned>(word >> (4 * i)) & 0xFU;
        rows[row * row_bytes + column / 2] |= static_cast<std::byte>(code << (4 * (column % 2)));
      }
    }
  }
}

std::vector<std::uint8_t> unpack_fields(std::span<const std::byte> words, MatrixSize size,
                                        int bits) {
  const auto columns = static_cast<std::size_t>(size.columns);
  const auto row_bytes =
      static_cast<std::size_t>(ceil_div(size.columns * bits, std::int64_t{32})) * 4;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(size.rows) * columns);
  for (std::size_t r = 0; r < static_cast<std::size_t>(size.rows); ++r) {
    const auto row = words.subspan(r * row_bytes, row_bytes);
    for (std::size_t c = 0; c < columns; ++c) {
      out[r * columns + c] =
          static_cast<std::uint8_t>(stream_bits(row, c * static_cast<std::uint64_t>(bits), bits));
    }
  }
  return out;
}

std::vector<std::uint8_t> unpack_awq_nibbles(std::span<const std::byte> words, MatrixSize size) {
  const auto columns = static_cast<std::size_t>(size.columns);
  const std::size_t width = (columns + 7) / 8;
  std::vector<std::uint8_t> out(static_cast<std::size_t>(size.rows) * columns);
  for (std::size_t r = 0; r < static_cast<std::size_t>(size.rows); ++r) {
    for (std::size_t c = 0; c < columns; ++c) {
      const std::uint32_t word = load_word(words, r * width + c / 8);
      out[r * columns + c] = static_cast<std::uint8_t>((word >> (4 * awq_nibble[c % 8])) & 0xFU);
    }
  }
  return out;
}

void transpose_elements(std::span<const std::byte> from, MatrixSize size, std::size_t width,
                        std::span<std::byte> to) {
  const auto rows = static_cast<std::size_t>(size.rows);
  const auto columns = static_cast<std::size_t>(size.columns);
  for_tiles(rows, columns, [&](std::size_t r0, std::size_t r1, std::size_t c0, std::size_t c1) {
    for (std::size_t c = c0; c < c1; ++c) {
      for (std::size_t r = r0; r < r1; ++r) {
        std::memcpy(to.data() + (c * rows + r) * width, from.data() + (r * columns + c) * width,
                    width);
      }
    }
  });
}

}  // namespace fewbit
