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
    for (const std::int64_t k : {1, 7, 32, 128, 129, 264}) {
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

}  // namespace
}  // namespace fewbit
