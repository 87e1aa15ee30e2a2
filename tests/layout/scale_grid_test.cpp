// SPDX-License-Identifier: Apache-2.0
#include "layout/scale_grid.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <vector>

namespace fewbit {
namespace {

using ::testing::ElementsAre;

std::vector<std::int64_t> columns_at(std::int64_t (*source)(std::int64_t), std::int64_t count) {
  std::vector<std::int64_t> columns;
  for (std::int64_t p = 0; p < count; ++p) columns.push_back(source(p));
  return columns;
}

TEST(ScaleGridTest, ByteScaleColumnsFollowTheKnownOrder) {
  EXPECT_THAT(columns_at(GroupedByteScales::source, 16),
              ElementsAre(0, 16, 8, 24, 32, 48, 40, 56, 1, 17, 9, 25, 33, 49, 41, 57));
  EXPECT_EQ(GroupedByteScales::column(90), 83);
  EXPECT_EQ(GroupedByteScales::source(83), 90);
}

TEST(ScaleGridTest, GroupedAndSingleColumnsFollowTheKnownOrder) {
  EXPECT_THAT(columns_at(grouped_source, 10), ElementsAre(0, 8, 16, 24, 32, 40, 48, 56, 1, 9));
  EXPECT_THAT(columns_at(single_source, 16),
              ElementsAre(0, 1, 8, 9, 16, 17, 24, 25, 2, 3, 10, 11, 18, 19, 26, 27));
}

TEST(ScaleGridTest, ColumnsAndSourcesAreInverseAndStayInTheirBlock) {
  for (const ScaleOrder order : {ScaleOrder::grouped, ScaleOrder::single}) {
    const std::int64_t block = order == ScaleOrder::grouped ? 64 : 32;
    for (std::int64_t n = 0; n < 256; ++n) {
      EXPECT_EQ(scale_source(order, scale_column(order, n)), n);
      EXPECT_EQ(scale_column(order, n) / block, n / block);
      EXPECT_EQ(swap12(swap12(n)), n);
    }
  }
}

TEST(ScaleGridTest, OneGroupAlongKUsesTheSingleOrder) {
  EXPECT_EQ(scale_order(64, 16), ScaleOrder::grouped);
  EXPECT_EQ(scale_order(16, 16), ScaleOrder::single);
  EXPECT_EQ(scale_order(24, 32), ScaleOrder::single);
  EXPECT_EQ(scale_order(64, -1), ScaleOrder::single);
}

TEST(ScaleGridTest, ARowThatDoesNotFillABlockIsPaddedPermutedAndCut) {
  std::vector<int> in(96);
  std::iota(in.begin(), in.end(), 1);
  std::vector<int> cut(96);
  permute_scale_row<int>(ScaleOrder::grouped, in, cut);
  std::vector<int> padded(128);
  permute_scale_row<int>(ScaleOrder::grouped, in, padded);
  EXPECT_TRUE(std::equal(cut.begin(), cut.end(), padded.begin()));
  // The second block holds columns 64..95 in positions with p%8 < 4; the others are padding.
  EXPECT_THAT(std::vector<int>(padded.begin() + 64, padded.begin() + 74),
              ElementsAre(65, 73, 81, 89, 0, 0, 0, 0, 66, 74));
}

}  // namespace
}  // namespace fewbit
