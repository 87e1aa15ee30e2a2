// SPDX-License-Identifier: Apache-2.0
#include "canonical/integer_words.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace fewbit {
namespace {

// Whole tiles, tiles with a rest each way, and no tile at all.
TEST(IntegerWordsTest, AwqWordsGiveTheCodesOfTheirRows) {
  constexpr unsigned nibble_of[] = {0, 4, 1, 5, 2, 6, 3, 7};
  for (const std::int64_t n : {8, 13, 128, 136, 260}) {
    for (const std::int64_t k : {1, 7, 32, 64, 128, 129, 264}) {
      const std::int64_t width = (n + 7) / 8;
      std::mt19937 random(static_cast<unsigned>(n * 1000 + k));
      std::vector<std::uint32_t> words(static_cast<std::size_t>(width * k));
      for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
      const std::int64_t row_bytes = (k + 1) / 2;
      std::vector<std::byte> rows(static_cast<std::size_t>(n * row_bytes), std::byte{0x5a});
      rows_from_words_n(std::as_bytes(std::span(words)), n, k, rows);
      for (std::int64_t row = 0; row < n; ++row) {
        for (std::int64_t column = 0; column < 2 * row_bytes; ++column) {
          unsigned code = 0;  // behind an odd k
          if (column < k) {
            const auto at = static_cast<std::size_t>(column * width + row / 8);
            code = words[at] >> (4 * nibble_of[row % 8]) & 15U;
          }
          const auto byte = std::to_integer<unsigned>(
              rows[static_cast<std::size_t>(row * row_bytes + column / 2)]);
          ASSERT_EQ(byte >> (4 * (column % 2)) & 15U, code) << n << " x " << k << " at " << row;
        }
      }
    }
  }
}

// Whole blocks of words, parts of one each way, and rows that end within their last word.
TEST(IntegerWordsTest, GptqWordsGiveTheirBytesInTheRowsOfTheirColumns) {
  for (const std::size_t count : {1U, 3U, 8U, 15U, 16U, 17U, 40U, 64U}) {
    for (const std::size_t n : {1U, 2U, 16U, 31U, 64U, 100U}) {
      for (const std::size_t missing : {0U, 1U, 2U, 3U}) {
        std::vector<std::uint32_t> words(count * n);
        for (std::size_t i = 0; i < words.size(); ++i) {
          words[i] = static_cast<std::uint32_t>(i * 2654435761U);
        }
        const std::size_t row_bytes = 4 * count - missing;
        constexpr std::byte untouched{0x5a};
        std::vector<std::byte> rows(n * row_bytes + 1, untouched);
        rows_from_words_k(
            std::as_bytes(std::span(words)),
            {.rows = static_cast<std::int64_t>(count), .columns = static_cast<std::int64_t>(n)},
            row_bytes, std::span(rows).first(n * row_bytes));
        for (std::size_t at = 0; at < n * row_bytes; ++at) {
          const std::size_t byte = at % row_bytes;
          const std::uint32_t word = words[byte / 4 * n + at / row_bytes];
          ASSERT_EQ(std::to_integer<unsigned>(rows[at]), word >> (8 * (byte % 4)) & 255U)
              << count << " words of " << n << " rows, byte " << at;
        }
        EXPECT_EQ(rows.back(), untouched);
      }
    }
  }
}

}  // namespace
}  // namespace fewbit
