// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/float_convert.hpp"
#include "fewbit/quantize.hpp"

namespace fewbit {
namespace {

using testing::Each;
using testing::HasSubstr;

int code(const Nvfp4Matrix& matrix, std::size_t i) {
  const auto byte = std::to_integer<int>(matrix.codes[i / 2]);
  return i % 2 == 0 ? byte & 0xF : byte >> 4;
}
float scale(const Nvfp4Matrix& matrix, std::size_t block) {
  return f8_e4m3_to_f32(std::to_integer<std::uint8_t>(matrix.scales[block]));
}

TEST(QuantizeNvfp4, TheLargestWeightBecomesTheLargestCodeAndScale) {
  std::vector<float> weights(16, 0.0F);
  weights[5] = -2688.0F;
  const auto matrix = quantize_nvfp4(1, 16, weights);
  ASSERT_TRUE(matrix) << matrix.error().message();
  EXPECT_EQ(matrix->global_scale, 1.0F);
  EXPECT_EQ(scale(*matrix, 0), 448.0F);
  EXPECT_EQ(code(*matrix, 5), 0xF);
  EXPECT_EQ(code(*matrix, 4), 0);
}

// With amax 6 * 448 the global scale is 1 and a block of amax 6 has scale 1: codes are the weights.
TEST(QuantizeNvfp4, TiesGoToTheEvenCode) {
  std::vector<float> weights(32, 0.0F);
  weights[0] = 2688.0F;
  const std::vector<float> block = {0.25F, 0.75F, 1.25F,  1.75F, 2.5F,  3.5F, 5.0F,  6.0F,
                                    0.26F, 0.74F, -1.25F, -5.1F, -0.2F, 0.0F, -6.0F, 2.51F};
  std::copy(block.begin(), block.end(), weights.begin() + 16);
  const auto matrix = quantize_nvfp4(1, 32, weights);
  ASSERT_TRUE(matrix);
  EXPECT_EQ(scale(*matrix, 1), 1.0F);
  const std::vector<int> expected = {0, 2, 2, 4, 4, 6, 6, 7, 1, 1, 0xA, 0xF, 0, 0, 0xF, 5};
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(code(*matrix, 16 + i), expected[i]) << block[i];
}

TEST(QuantizeNvfp4, ZeroBlocksHaveScaleOneAndAZeroMatrixIsFinite) {
  std::vector<float> weights(32, 0.0F);
  const auto zeros = quantize_nvfp4(2, 16, weights);
  ASSERT_TRUE(zeros);
  EXPECT_EQ(zeros->global_scale, 1.0F);
  EXPECT_THAT(zeros->codes, Each(std::byte{0}));
  EXPECT_EQ(zeros->erased_blocks, 0);
  weights[0] = 1.0F;
  const auto half = quantize_nvfp4(2, 16, weights);
  EXPECT_EQ(scale(*half, 1), 1.0F);
}

// Below 2^-9 of the largest block a scale is raised to 2^-9; below a quarter of that times the
// smallest code, all of the block's weights round to zero.
TEST(QuantizeNvfp4, ClampedScalesAndErasedBlocksAreCounted) {
  std::vector<float> weights(64, 0.0F);
  weights[0] = 2688.0F;
  weights[16] = 6.0F * 0x1p-10F;  // scale wants 2^-10, raised; survives as code 5 or so
  weights[32] = 0.24F * 0x1p-9F;  // raised; rounds to zero
  weights[48] = 6.0F * 0x1p-9F;   // exactly the smallest scale
  const auto matrix = quantize_nvfp4(4, 16, weights);
  ASSERT_TRUE(matrix);
  EXPECT_EQ(matrix->clamped_scales, 2);
  EXPECT_EQ(matrix->erased_blocks, 1);
  EXPECT_EQ(scale(*matrix, 1), 0x1p-9F);
  EXPECT_EQ(code(*matrix, 16), 5);  // 3 * 2^-9
  EXPECT_EQ(code(*matrix, 32), 0);
  EXPECT_EQ(code(*matrix, 48), 7);
}

TEST(QuantizeNvfp4, SubnormalWeightsGiveNoInfinities) {
  std::vector<float> weights(16, std::numeric_limits<float>::denorm_min());
  const auto matrix = quantize_nvfp4(1, 16, weights);
  ASSERT_TRUE(matrix);
  EXPECT_GT(matrix->global_scale, 0.0F);
  EXPECT_TRUE(std::isfinite(scale(*matrix, 0)));
}

// Half the distance between neighbouring codes. A scale that was rounded down (by at most 1/16)
// leaves weights up to 6.4 steps: still less than half the last distance above 6.
TEST(QuantizeNvfp4, EveryWeightIsWithinItsBlocksStep) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  const std::int64_t n = 24;
  const std::int64_t k = 80;
  std::vector<float> weights(static_cast<std::size_t>(n * k));
  for (float& w : weights) w = normal(random);
  const auto matrix = quantize_nvfp4(n, k, weights);
  ASSERT_TRUE(matrix);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double step =
        static_cast<double>(scale(*matrix, i / 16)) * static_cast<double>(matrix->global_scale);
    const double w = weights[i];
    const double q =
        static_cast<double>(f4_e2m1_to_f32(static_cast<std::uint8_t>(code(*matrix, i)))) * step;
    const double magnitude = std::abs(w) / step;
    const double half_step = magnitude < 2 ? 0.25 : magnitude < 4 ? 0.5 : 1.0;
    EXPECT_LE(std::abs(w - q), half_step * step * (1 + 1e-6)) << i;
  }
}

TEST(QuantizeNvfp4, RefusesWhatIsNotAMatrixOfFiniteWeights) {
  std::vector<float> weights(32, 1.0F);
  for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{2, 15},
                             {1, 16},
                             {0, 16},
                             {-2, -16},
                             {INT64_MAX, 16}}) {
    EXPECT_FALSE(quantize_nvfp4(n, k, weights)) << n << " " << k;
  }
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    weights[19] = bad;
    const auto matrix = quantize_nvfp4(2, 16, weights);
    ASSERT_FALSE(matrix);
    EXPECT_EQ(matrix.error().code, ErrorCode::corrupt);
    EXPECT_THAT(matrix.error().what, HasSubstr("weight [1, 3] is "));
  }
}

}  // namespace
}  // namespace fewbit
