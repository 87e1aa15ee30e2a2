// SPDX-License-Identifier: Apache-2.0
// Integer weights as SGLang's helpers make them: examples worked out by hand, and what is refused.
#include "quantize/sglang_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace fewbit::sglang {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

QuantizeOptions options_of(const char* type, std::int64_t group_size, bool zero_points) {
  QuantizeOptions options;
  options.type = *integer_type(type);
  options.group_size = group_size;
  options.zero_points = zero_points;
  return options;
}

// 0.05 / 0.1 is half a step: it rounds to the even 0.
const std::vector<float> column = {0.7F, -0.3F, 0.05F, -0.8F};

TEST(SglangQuantizeWeights, TheLargestWeightOfEitherSignReachesTheEndOfItsRange) {
  const auto made = quantize_weights(column, {4, 1}, DType::f32, options_of("uint4b8", -1, false));
  ASSERT_TRUE(made);
  EXPECT_THAT(made->codes, ElementsAre(15, 5, 8, 0));
  EXPECT_THAT(made->scales, ElementsAre(0.1F));
  EXPECT_THAT(made->zeros, IsEmpty());
  EXPECT_THAT(made->reference, ElementsAre(7 * 0.1F, -3 * 0.1F, 0.0F, -8 * 0.1F));
}

TEST(SglangQuantizeWeights, ZeroPointsShiftTheRange) {
  const auto made = quantize_weights(column, {4, 1}, DType::f32, options_of("uint4", -1, true));
  ASSERT_TRUE(made);
  EXPECT_THAT(made->codes, ElementsAre(15, 5, 8, 0));
  EXPECT_THAT(made->zeros, ElementsAre(8));
}

TEST(SglangQuantizeWeights, EveryGroupOfAColumnHasItsOwnScale) {
  // Two columns, two groups of two rows.
  const std::vector<float> w = {7, 14, -7, 14, 21, 28, 21, -28};
  const auto made = quantize_weights(w, {4, 2}, DType::f32, options_of("uint4b8", 2, false));
  ASSERT_TRUE(made);
  EXPECT_THAT(made->scales, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(made->codes, ElementsAre(15, 15, 1, 15, 15, 15, 15, 1));
  EXPECT_EQ(made->reference, w);
}

TEST(SglangQuantizeWeights, AGroupOfZerosStaysZero) {
  const std::vector<float> zeros(4);
  const auto made = quantize_weights(zeros, {4, 1}, DType::f16, options_of("uint4b8", -1, false));
  ASSERT_TRUE(made);
  EXPECT_THAT(made->codes, Each(8));
  EXPECT_THAT(made->reference, Each(0.0F));
}

// SGLang takes the zero point of |min|, which puts a group of one sign beyond the codes.
TEST(SglangQuantizeWeights, GroupsOfOneSignNeedZeroInTheirRange) {
  for (const float sign : {1.0F, -1.0F}) {
    const std::vector<float> w = {sign, 1.3F * sign, 1.6F * sign, 2.0F * sign};
    QuantizeOptions options = options_of("uint4", -1, true);
    const auto theirs = quantize_weights(w, {4, 1}, DType::f32, options);
    ASSERT_TRUE(theirs);
    EXPECT_THAT(theirs->reference, Each(theirs->reference[0]));
    options.range = ZeroPointRange::with_zero;
    const auto ours = quantize_weights(w, {4, 1}, DType::f32, options);
    ASSERT_TRUE(ours);
    EXPECT_THAT(ours->zeros, ElementsAre(sign > 0 ? 0 : 15));
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(double{ours->reference[i]}, double{w[i]}, 1.0 / 15 + 1e-6) << i;
    }
  }
}

TEST(SglangQuantizeWeights, BadInputIsRefusedWithItsNumbers) {
  const auto what = [](std::span<const float> w, MatrixSize size, DType dtype,
                       const QuantizeOptions& options) {
    const auto made = quantize_weights(w, size, dtype, options);
    EXPECT_FALSE(made);
    return made ? std::string() : made.error().what;
  };
  const auto symmetric = options_of("uint4b8", -1, false);
  EXPECT_THAT(what(column, {4, 2}, DType::f32, symmetric), HasSubstr("4 weights, expected [4, 2]"));
  EXPECT_THAT(what(column, {4, 1}, DType::f8_e4m3, symmetric), HasSubstr("weights are f8_e4m3"));
  EXPECT_THAT(what(column, {4, 1}, DType::f32, options_of("uint4b8", 3, false)),
              HasSubstr("4 rows are no whole groups of 3"));
  EXPECT_THAT(what(column, {4, 1}, DType::f32, options_of("int4", -1, true)),
              HasSubstr("unsigned type"));
  const std::vector<float> nan = {1, std::nanf(""), 0, 0};
  EXPECT_THAT(what(nan, {4, 1}, DType::f32, symmetric), HasSubstr("weight 1 is nan"));
  EXPECT_THAT(integer_type("uint5").error().what, HasSubstr("uint4b8"));
}

TEST(SglangGptqQuantizeWeights, RowsMoveWithTheirGroups) {
  std::vector<float> w(64);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i) - 30.0F;
  std::vector<std::int64_t> order(64);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(63 - i);
  const auto plain = gptq_quantize_weights(w, {64, 1}, DType::f32, "uint4b8", 32, {});
  const auto moved = gptq_quantize_weights(w, {64, 1}, DType::f32, "uint4b8", 32, order);
  ASSERT_TRUE(plain && moved);
  EXPECT_THAT(plain->g_idx, IsEmpty());
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(moved->weights.codes[i], plain->weights.codes[63 - i]);
    EXPECT_EQ(moved->g_idx[i], i < 32 ? 1 : 0);
  }
  order[0] = 0;
  EXPECT_THAT(gptq_quantize_weights(w, {64, 1}, DType::f32, "uint4b8", 32, order).error().what,
              HasSubstr("row 0 stands twice"));
  EXPECT_THAT(gptq_quantize_weights(w, {64, 1}, DType::f32, "uint4", 32, {}).error().what,
              HasSubstr("expected uint4b8 or uint8b128"));
  EXPECT_THAT(gptq_quantize_weights(w, {64, 1}, DType::f32, "uint4b8", 48, {}).error().what,
              HasSubstr("groups of 48"));
}

}  // namespace
}  // namespace fewbit::sglang
