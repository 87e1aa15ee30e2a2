// SPDX-License-Identifier: Apache-2.0
#include "layout/cpu_int4_sums.hpp"

#include <algorithm>
#include <cstring>

#include "layout/awq_words.hpp"

namespace fewbit {
namespace {

constexpr std::uint32_t even_nibbles = 0x0f0f0f0fU;
constexpr std::int64_t row_words = sum_columns / 8;  // of words along n

// A word is 8 k of a column: bytes of two codes each, at most 8 words before a byte is full.
CodeSums sum_gptq(std::int64_t n, const std::byte* words, std::int64_t rows) {
  CodeSums sums{};
  for (std::int64_t first = 0; first < rows; first += 8) {
    std::array<std::uint32_t, sum_columns> bytes{};
    for (std::int64_t row = first; row < std::min(first + 8, rows); ++row) {
      std::array<std::uint32_t, sum_columns> codes{};
      std::memcpy(codes.data(), words + row * n * 4, sizeof codes);
      for (std::size_t c = 0; c < codes.size(); ++c) {
        bytes[c] += (codes[c] & even_nibbles) + (codes[c] >> 4U & even_nibbles);
      }
    }
    for (std::size_t c = 0; c < bytes.size(); ++c) {
      const std::uint32_t pairs = (bytes[c] & 0x00ff00ffU) + (bytes[c] >> 8U & 0x00ff00ffU);
      sums[c] += static_cast<std::int32_t>((pairs & 0xffffU) + (pairs >> 16U));
    }
  }
  return sums;
}

// A word is 8 columns of one k: a byte holds 17 sums of a code.
CodeSums sum_awq(std::int64_t n, const std::byte* words, std::int64_t count) {
  CodeSums sums{};
  for (std::int64_t first = 0; first < count; first += 16) {
    std::array<std::uint32_t, row_words> even{};
    std::array<std::uint32_t, row_words> odd{};
    for (std::int64_t k = first; k < std::min(first + 16, count); ++k) {
      std::array<std::uint32_t, row_words> codes{};
      std::memcpy(codes.data(), words + k * (n / 2), sizeof codes);
      for (std::size_t w = 0; w < codes.size(); ++w) {
        even[w] += codes[w] & even_nibbles;
        odd[w] += codes[w] >> 4U & even_nibbles;
      }
    }
    for (std::size_t c = 0; c < sums.size(); ++c) {
      const auto slot = static_cast<unsigned>(awq_slot(static_cast<std::int64_t>(c % 8), 8));
      const std::uint32_t word = slot % 2 == 0 ? even[c / 8] : odd[c / 8];
      sums[c] += static_cast<std::int32_t>(word >> (slot / 2 * 8) & 0xffU);
    }
  }
  return sums;
}

}  // namespace

CodeSums sum_codes(WordSource source, Dims dims, std::span<const std::byte> words, Element first,
                   std::int64_t count) {
  if (source == WordSource::gptq) {
    return sum_gptq(dims.n, words.data() + (first.k / 8 * dims.n + first.n) * 4, count / 8);
  }
  return sum_awq(dims.n, words.data() + (first.k * dims.n + first.n) / 2, count);
}

// Eight bytes at a time; a byte holds the sums of 8 of them.
std::int32_t sum_row(const std::byte* codes, std::int64_t bytes, bool signed_codes) {
  constexpr std::uint64_t nibbles = 0x0f0f0f0f0f0f0f0fU;
  constexpr std::uint64_t even_bytes = 0x00ff00ff00ff00ffU;
  const std::uint64_t flip = signed_codes ? 0x8888888888888888U : 0U;
  std::int32_t sum = 0;
  for (std::int64_t first = 0; first < bytes; first += 64) {
    std::uint64_t lanes = 0;
    for (std::int64_t at = first; at < std::min(first + 64, bytes); at += 8) {
      std::uint64_t eight = 0;
      std::memcpy(&eight, codes + at, sizeof eight);
      eight ^= flip;
      lanes += (eight & nibbles) + (eight >> 4U & nibbles);
    }
    const std::uint64_t pairs = (lanes & even_bytes) + (lanes >> 8U & even_bytes);
    sum += static_cast<std::int32_t>(pairs * 0x0001000100010001U >> 48U);
  }
  return sum;
}

std::array<std::int8_t, sum_columns> column_codes(WordSource source, Dims dims,
                                                  std::span<const std::byte> words,
                                                  std::int64_t first_n, std::int64_t k) {
  std::array<std::uint32_t, row_words> row{};
  std::memcpy(row.data(), words.data() + (k * dims.n + first_n) / 2, sizeof row);
  std::array<std::int8_t, sum_columns> codes{};
  for (std::size_t c = 0; c < codes.size(); ++c) {
    const auto column = static_cast<std::int64_t>(c % 8);
    const std::int64_t slot = source == WordSource::awq ? awq_slot(column, 8) : column;
    codes[c] = static_cast<std::int8_t>(row[c / 8] >> (4 * slot) & 15U);
  }
  return codes;
}

}  // namespace fewbit
