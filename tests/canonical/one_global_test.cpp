// SPDX-License-Identifier: Apache-2.0
#include "canonical/one_global.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/float_convert.hpp"

namespace fewbit {
namespace {

// One row with these block scales, which are e4m3 values.
QuantizedTensor matrix(float global, const std::vector<float>& scales) {
  const auto groups = static_cast<std::int64_t>(scales.size());
  OwnedTensor codes = *allocate_tensor(DType::f4_e2m1, {1, groups * 16});
  OwnedTensor bytes = *allocate_tensor(DType::f8_e4m3, {1, groups});
  for (std::size_t i = 0; i < scales.size(); ++i) {
    bytes.bytes[i] = static_cast<std::byte>(f32_to_f8_e4m3(scales[i]));
  }
  return *make_nvfp4(1, groups * 16, codes.tensor, bytes.tensor, global);
}

ExpertWeights expert(QuantizedTensor gate, QuantizedTensor up) {
  ExpertWeights out;
  out.gate = std::move(gate);
  out.up = std::move(up);
  return out;
}

std::vector<float> scaled(const QuantizedTensor& tensor) {
  std::vector<float> values;
  for (const std::byte code : tensor.scales.view.bytes) {
    values.push_back(f8_e4m3_to_f32(std::to_integer<std::uint8_t>(code)) * tensor.global_scale);
  }
  return values;
}

void expect_one(const ExpertWeights& weights, float global) {
  EXPECT_FALSE(keeps_two_globals(weights));
  const auto one = with_one_global(weights);
  ASSERT_TRUE(one) << one.error().message();
  EXPECT_EQ(one->gate->global_scale, global);
  EXPECT_EQ(one->up.global_scale, global);
  EXPECT_EQ(scaled(*one->gate), scaled(*weights.gate));
  EXPECT_EQ(scaled(one->up), scaled(weights.up));
}

TEST(OneGlobal, IsTheirsWhenTheyHaveOne) {
  expect_one(expert(matrix(0.3F, {1, 448}), matrix(0.3F, {0.001953125F})), 0.3F);
}

TEST(OneGlobal, IsThatOfOneWhoseScalesTheOtherCanTakeUp) {
  expect_one(expert(matrix(0.25F, {1, 3.5F, 0}), matrix(1, {448, 9})), 1);
  expect_one(expert(matrix(0.25F, {448, 3.5F}), matrix(1, {1, 9})), 0.25F);
  // 3/2 of a power of two is a value of e4m3.
  expect_one(expert(matrix(0.5F, {4, -2}), matrix(0.75F, {1, 16})), 0.5F);
}

// Neither 448 * 4 nor 2^-9 / 4 is a value; 448 * 2 is none, 2^-8 / 2 and 224 * 2 are.
TEST(OneGlobal, MayLieBetween) {
  expect_one(expert(matrix(1, {224, 1}), matrix(0.25F, {0.00390625F, 1})), 0.5F);
}

TEST(OneGlobal, IsNoneWhereAWeightWouldChange) {
  const std::vector<ExpertWeights> all{
      expert(matrix(0.3F, {1.125F}), matrix(0.25F, {1.125F})),
      expert(matrix(1, {448}), matrix(0.25F, {0.001953125F})),
  };
  for (const ExpertWeights& each : all) {
    EXPECT_TRUE(keeps_two_globals(each));
    const auto one = with_one_global(each);
    ASSERT_FALSE(one);
    EXPECT_NE(one.error().message().find("different global scales, "), std::string::npos);
  }
}

TEST(OneGlobal, IsNotAskedOfExpertsWithoutAGateOrAGlobalScale) {
  ExpertWeights weights;
  weights.up = matrix(0.3F, {1});
  EXPECT_FALSE(keeps_two_globals(weights));
  EXPECT_TRUE(with_one_global(weights));
}

}  // namespace
}  // namespace fewbit
