// SPDX-License-Identifier: Apache-2.0
// Codes and zero points in the words of GPTQ and AWQ, as dense rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fewbit {

struct MatrixSize {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

// GPTQ: words [ceil(k * bits / 32), n], which hold the codes of a column one after another from the
// low bits on. rows [n, row_bytes]: the same bits, a matrix row in whole bytes.
void rows_from_words_k(std::span<const std::byte> words, MatrixSize size, std::size_t row_bytes,
                       std::span<std::byte> rows);
// AWQ GEMM: words [k, ceil(n / 8)]; nibble i of a word holds row 8 * column + (0,2,4,6,1,3,5,7)[i].
// rows [n, ceil(k / 2)], even columns in the low nibble.
void rows_from_words_n(std::span<const std::byte> words, std::int64_t n, std::int64_t k,
                       std::span<std::byte> rows);
// AWQ GEMV-fast: i16 [n / 4, k], k a multiple of 64. Bits 4i to 4i + 3 of word 64s + t of quad r
// hold row 4r + t / 16 and, with p = 4 * (t mod 16) + i, column
//   64s + 32 * (p / 32) + 8 * (p mod 4) + 2 * (p mod 32 / 8) + p mod 8 / 4.
void rows_from_shorts_gemv(std::span<const std::byte> shorts, std::int64_t n, std::int64_t k,
                           std::span<std::byte> rows);

// Fields of `bits` bits in rows of whole words: [rows, columns] as one byte each.
std::vector<std::uint8_t> unpack_fields(std::span<const std::byte> words, MatrixSize size,
                                        int bits);
// Of AWQ: nibble i of a word is column (0,2,4,6,1,3,5,7)[i] of its eight.
std::vector<std::uint8_t> unpack_awq_nibbles(std::span<const std::byte> words, MatrixSize size);

// [rows, columns] of elements of `width` bytes to [columns, rows].
void transpose_elements(std::span<const std::byte> from, MatrixSize size, std::size_t width,
                        std::span<std::byte> to);

}  // namespace fewbit
