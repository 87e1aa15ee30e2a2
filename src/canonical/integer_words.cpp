// SPDX-License-Identifier: Apache-2.0
#include "canonical/integer_words.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/bit_stream.hpp"
#include "core/checked.hpp"
#include "core/transpose_words.hpp"

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

struct AwqRows {
  std::span<const std::byte> words;
  std::span<std::byte> rows;
  std::size_t n;
  std::size_t columns;

  std::size_t width() const { return (n + 7) / 8; }
  std::size_t row_bytes() const { return (columns + 1) / 2; }
};

// Words of a cache line.
constexpr std::size_t tile_words = 16;
typedef std::uint32_t Words __attribute__((vector_size(16)));
constexpr std::size_t lanes = 4;

void exchange(Words& low, Words& high, unsigned shift, std::uint32_t mask) {
  const Words different = ((low >> shift) ^ high) & mask;
  high ^= different;
  low ^= different << shift;
}

// Nibble j of word i becomes nibble i of word j, in every lane.
void transpose_nibbles(Words (&words)[8]) {
  for (std::size_t i = 0; i < 4; ++i) exchange(words[i], words[i + 4], 16, 0x0000FFFFU);
  for (const unsigned i : {0U, 1U, 4U, 5U}) exchange(words[i], words[i + 2], 8, 0x00FF00FFU);
  for (const unsigned i : {0U, 2U, 4U, 6U}) exchange(words[i], words[i + 1], 4, 0x0F0F0F0FU);
}

// Word i of vector j becomes word j of vector i.
void transpose_four(const Words (&in)[lanes], Words (&out)[lanes]) {
  const Words a = __builtin_shufflevector(in[0], in[1], 0, 4, 1, 5);
  const Words b = __builtin_shufflevector(in[0], in[1], 2, 6, 3, 7);
  const Words c = __builtin_shufflevector(in[2], in[3], 0, 4, 1, 5);
  const Words d = __builtin_shufflevector(in[2], in[3], 2, 6, 3, 7);
  out[0] = __builtin_shufflevector(a, c, 0, 1, 4, 5);
  out[1] = __builtin_shufflevector(a, c, 2, 3, 6, 7);
  out[2] = __builtin_shufflevector(b, d, 0, 1, 4, 5);
  out[3] = __builtin_shufflevector(b, d, 2, 3, 6, 7);
}

// 16 words of 128 columns, from word `first` and from eight columns `block` on.
void move_awq_tile(const AwqRows& matrix, std::size_t first, std::size_t block) {
  std::uint32_t out[8 * tile_words][tile_words];
  for (std::size_t b = 0; b < tile_words; b += lanes) {
    for (std::size_t w = 0; w < tile_words; w += lanes) {
      Words blocks[lanes][8];
      for (std::size_t four = 0; four < lanes; ++four) {
        const std::byte* const from =
            matrix.words.data() + 4 * (8 * (block + b + four) * matrix.width() + first + w);
        for (std::size_t i = 0; i < 8; ++i) {
          const std::byte* const word = from + 4 * i * matrix.width();
          __builtin_prefetch(word + 4 * tile_words);  // of the next tile
          std::memcpy(&blocks[four][i], word, sizeof blocks[four][i]);
        }
        transpose_nibbles(blocks[four]);
      }
      for (std::size_t j = 0; j < 8; ++j) {
        const unsigned nibble = awq_nibble[j];
        const Words column[lanes] = {blocks[0][nibble], blocks[1][nibble], blocks[2][nibble],
                                     blocks[3][nibble]};
        Words rows[lanes];
        transpose_four(column, rows);
        for (std::size_t lane = 0; lane < lanes; ++lane) {
          std::memcpy(&out[8 * (w + lane) + j][b], &rows[lane], sizeof rows[lane]);
        }
      }
    }
  }
  for (std::size_t row = 0; row < 8 * tile_words; ++row) {
    const std::size_t to = (8 * first + row) * matrix.row_bytes() + 4 * block;
    std::memcpy(matrix.rows.data() + to, out[row], sizeof out[row]);
  }
}

struct AwqPart {
  std::size_t first_byte, end_byte;  // of rows
  std::size_t first_word, end_word;  // of a row of words
};

void move_awq_bytes(const AwqRows& matrix, const AwqPart& part) {
  const std::size_t width = matrix.width();
  for (std::size_t w = part.first_word; w < part.end_word; ++w) {
    const std::size_t count = std::min<std::size_t>(8, matrix.n - 8 * w);
    for (std::size_t b = part.first_byte; b < part.end_byte; ++b) {
      const std::uint32_t even = load_word(matrix.words, 2 * b * width + w);
      const std::uint32_t odd =
          2 * b + 1 < matrix.columns ? load_word(matrix.words, (2 * b + 1) * width + w) : 0;
      for (std::size_t j = 0; j < count; ++j) {
        const unsigned shift = 4 * awq_nibble[j];
        matrix.rows[(8 * w + j) * matrix.row_bytes() + b] =
            static_cast<std::byte>(((even >> shift) & 0xFU) | (((odd >> shift) & 0xFU) << 4U));
      }
    }
  }
}

}  // namespace

void rows_from_words_k(std::span<const std::byte> words, MatrixSize size, std::size_t row_bytes,
                       std::span<std::byte> rows) {
  const auto count = static_cast<std::size_t>(size.rows);
  const auto n = static_cast<std::size_t>(size.columns);
  if (row_bytes == 4 * count) return transpose_words(words, count, n, rows);
  for_tiles(count, n, [&](std::size_t r0, std::size_t r1, std::size_t c0, std::size_t c1) {
    for (std::size_t c = c0; c < c1; ++c) {
      for (std::size_t r = r0; r < r1; ++r) {
        std::byte* to = rows.data() + c * row_bytes + 4 * r;
        const std::byte* from = words.data() + 4 * (r * n + c);
        const std::size_t left = row_bytes - 4 * r;
        // The last word of a row may hold bits behind its end.
        if (left >= 4) {
          std::memcpy(to, from, 4);
        } else {
          std::memcpy(to, from, left);
        }
      }
    }
  });
}

void rows_from_words_n(std::span<const std::byte> words, std::int64_t n, std::int64_t k,
                       std::span<std::byte> rows) {
  const AwqRows matrix{.words = words,
                       .rows = rows,
                       .n = static_cast<std::size_t>(n),
                       .columns = static_cast<std::size_t>(k)};
  // Whole tiles at once, then their rest, byte by byte.
  const std::size_t width = matrix.n / 8 / tile_words * tile_words;
  const std::size_t blocks = matrix.columns / 8 / tile_words * tile_words;
  for (std::size_t b = 0; b < blocks; b += tile_words) {
    for (std::size_t w = 0; w < width; w += tile_words) move_awq_tile(matrix, w, b);
  }
  move_awq_bytes(matrix, {.first_byte = 4 * blocks,
                          .end_byte = matrix.row_bytes(),
                          .first_word = 0,
                          .end_word = width});
  move_awq_bytes(matrix, {.first_byte = 0,
                          .end_byte = matrix.row_bytes(),
                          .first_word = width,
                          .end_word = matrix.width()});
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
