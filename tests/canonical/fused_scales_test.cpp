// SPDX-License-Identifier: Apache-2.0
#include "canonical/fused_scales.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/float_convert.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(FusedScales, AScaleAShardBecomesAScaleARow) {
  const float scales[] = {0.5F, 2.0F};
  const std::int64_t rows[] = {1, 3};
  const auto spread = spread_shard_scales(scales, rows);
  ASSERT_TRUE(spread);
  EXPECT_THAT(*spread, ElementsAre(0.5F, 2.0F, 2.0F, 2.0F));
}

TEST(FusedScales, OneScaleIsThatOfAllShards) {
  const float scales[] = {0.5F};
  const std::int64_t rows[] = {1, 2};
  EXPECT_THAT(*spread_shard_scales(scales, rows), ElementsAre(0.5F, 0.5F, 0.5F));
}

TEST(FusedScales, MergedCodesKeepTheLargestScaleAndRoundTheOthers) {
  const float scales[] = {1.0F, 0.25F};
  const std::int64_t rows[] = {1, 1};
  // 448 and 1.125 with scale 1; 448 and 1.125 (0.28125, between codes 0.28125 and …) with 1/4.
  std::vector<std::uint8_t> codes = {0x7E, 0x39, 0x7E, 0x39};
  const auto largest = merge_shard_scales(scales, rows, 2, codes);
  ASSERT_TRUE(largest);
  EXPECT_EQ(*largest, 1.0F);
  EXPECT_EQ(f8_e4m3_to_f32(codes[0]), 448.0F);
  EXPECT_EQ(f8_e4m3_to_f32(codes[1]), 1.125F);
  EXPECT_EQ(f8_e4m3_to_f32(codes[2]), 112.0F);
  EXPECT_EQ(f8_e4m3_to_f32(codes[3]), 0.28125F);
}

TEST(FusedScales, AnUnsetLastScaleLeavesTheCodes) {
  const float scales[] = {0.5F, -3.4028235e38F};
  const std::int64_t rows[] = {1, 1};
  std::vector<std::uint8_t> codes = {0x01, 0x7E};
  const auto largest = merge_shard_scales(scales, rows, 1, codes);
  ASSERT_TRUE(largest);
  EXPECT_EQ(*largest, 0.5F);
  EXPECT_THAT(codes, ElementsAre(0x01, 0x7E));
}

TEST(FusedScales, NumbersThatDifferAreErrors) {
  const float scales[] = {0.5F};
  const float three[] = {0.5F, 1.0F, 2.0F};
  const std::int64_t two[] = {1, 1};
  const std::int64_t negative[] = {-1};
  std::vector<std::uint8_t> codes(3);
  EXPECT_THAT(spread_shard_scales(three, two).error().what, HasSubstr("3 scales for 2 shards"));
  EXPECT_THAT(spread_shard_scales(scales, negative).error().what, HasSubstr("shard of -1 rows"));
  EXPECT_THAT(merge_shard_scales(scales, std::span(two).first(1), 2, codes).error().what,
              HasSubstr("3 codes, expected 1 rows of 2"));
}

}  // namespace
}  // namespace fewbit
