// SPDX-License-Identifier: Apache-2.0
#include "core/transpose_words.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fewbit {
namespace {

TEST(TransposeWordsTest, PutsEveryWordOfWholeAndPartTilesInItsPlace) {
  for (const std::size_t rows : {1U, 3U, 15U, 16U, 17U, 40U, 64U}) {
    for (const std::size_t columns : {1U, 2U, 16U, 31U, 32U, 50U}) {
      std::vector<std::uint32_t> from(rows * columns);
      for (std::size_t i = 0; i < from.size(); ++i) {
        from[i] = static_cast<std::uint32_t>(i * 2654435761U);
      }
      std::vector<std::uint32_t> to(from.size() + 1, 7);
      transpose_words(std::as_bytes(std::span(from)), rows, columns,
                      std::as_writable_bytes(std::span(to)).first(4 * from.size()));
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
          ASSERT_EQ(to[c * rows + r], from[r * columns + c]) << rows << " x " << columns;
        }
      }
      EXPECT_EQ(to.back(), 7U);
    }
  }
}

}  // namespace
}  // namespace fewbit
