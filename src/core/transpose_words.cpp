// SPDX-License-Identifier: Apache-2.0
#include "core/transpose_words.hpp"

#include <cstdint>
#include <cstring>

namespace fewbit {
namespace {

// A cache line of words: a tile reads and writes whole lines, each once, so that it does not matter
// how many of them fall into one set of the caches.
constexpr std::size_t tile = 16;

struct Matrix {
  const std::byte* from;
  std::byte* to;
  std::size_t rows;
  std::size_t columns;

  const std::byte* source(std::size_t row, std::size_t column) const {
    return from + 4 * (row * columns + column);
  }
  std::byte* target(std::size_t row, std::size_t column) const {
    return to + 4 * (column * rows + row);
  }
};

typedef std::uint32_t Words __attribute__((vector_size(16)));

#if defined(__clang__)
#define FEWBIT_SHUFFLE(a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define FEWBIT_SHUFFLE(a, b, i, j, k, l) __builtin_shuffle(a, b, Words{i, j, k, l})
#endif

// Of tiles.
void transpose_4x4(const std::uint32_t* in, std::uint32_t* out) {
  Words row[4];
  for (std::size_t i = 0; i < 4; ++i) std::memcpy(&row[i], in + i * tile, sizeof row[i]);
  const Words low01 = FEWBIT_SHUFFLE(row[0], row[1], 0, 4, 1, 5);
  const Words low23 = FEWBIT_SHUFFLE(row[2], row[3], 0, 4, 1, 5);
  const Words high01 = FEWBIT_SHUFFLE(row[0], row[1], 2, 6, 3, 7);
  const Words high23 = FEWBIT_SHUFFLE(row[2], row[3], 2, 6, 3, 7);
  const Words column[4] = {
      FEWBIT_SHUFFLE(low01, low23, 0, 1, 4, 5), FEWBIT_SHUFFLE(low01, low23, 2, 3, 6, 7),
      FEWBIT_SHUFFLE(high01, high23, 0, 1, 4, 5), FEWBIT_SHUFFLE(high01, high23, 2, 3, 6, 7)};
  for (std::size_t i = 0; i < 4; ++i) std::memcpy(out + i * tile, &column[i], sizeof column[i]);
}
#undef FEWBIT_SHUFFLE

void transpose_tile(const Matrix& matrix, std::size_t row, std::size_t column) {
  // Rows lie pages apart, where no hardware looks ahead: the lines of the next tile.
  if (row + 2 * tile <= matrix.rows) {
    for (std::size_t i = 0; i < tile; ++i) {
      __builtin_prefetch(matrix.source(row + tile + i, column));
    }
  }
  std::uint32_t in[tile * tile];
  std::uint32_t out[tile * tile];
  for (std::size_t i = 0; i < tile; ++i) {
    std::memcpy(in + i * tile, matrix.source(row + i, column), 4 * tile);
  }
  for (std::size_t r = 0; r < tile; r += 4) {
    for (std::size_t c = 0; c < tile; c += 4) {
      transpose_4x4(&in[r * tile + c], &out[c * tile + r]);
    }
  }
  for (std::size_t i = 0; i < tile; ++i) {
    std::memcpy(matrix.target(row, column + i), out + i * tile, 4 * tile);
  }
}

void transpose_each(const Matrix& matrix, std::size_t first_row, std::size_t end_row,
                    std::size_t first_column, std::size_t end_column) {
  for (std::size_t c = first_column; c < end_column; ++c) {
    for (std::size_t r = first_row; r < end_row; ++r) {
      std::memcpy(matrix.target(r, c), matrix.source(r, c), 4);
    }
  }
}

}  // namespace

void transpose_words(std::span<const std::byte> from, std::size_t rows, std::size_t columns,
                     std::span<std::byte> to) {
  const Matrix matrix{from.data(), to.data(), rows, columns};
  const std::size_t tiled_rows = rows - rows % tile;
  const std::size_t tiled_columns = columns - columns % tile;
  for (std::size_t c = 0; c < tiled_columns; c += tile) {
    for (std::size_t r = 0; r < tiled_rows; r += tile) transpose_tile(matrix, r, c);
    transpose_each(matrix, tiled_rows, rows, c, c + tile);
  }
  transpose_each(matrix, 0, rows, tiled_columns, columns);
}

}  // namespace fewbit
