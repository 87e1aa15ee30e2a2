// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "fewbit/model.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

Sampler sampler(const SamplingParams& params) { return *Sampler::create(params); }

std::map<std::int32_t, double> frequencies(const SamplingParams& params,
                                           std::span<const float> logits, int draws) {
  Sampler source = sampler(params);
  std::map<std::int32_t, double> counts;
  for (int i = 0; i < draws; ++i) counts[*source.sample(logits)] += 1.0 / draws;
  return counts;
}

TEST(Sampler, GreedyTakesTheLargestAndOfEqualsTheLowestId) {
  Sampler greedy = sampler({});
  EXPECT_EQ(*greedy.sample(std::vector<float>{0.5F, 2.0F, 1.0F, 2.0F}), 1);
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(*greedy.sample(std::vector<float>{-infinity, -infinity}), 0);
}

// Frequencies are within 5 standard errors of softmax(logits / temperature).
TEST(Sampler, DrawsFromTheSoftmaxAtItsTemperature) {
  const std::vector<float> logits = {1.0F, 3.0F, 2.0F, -1.0F};
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    constexpr int draws = 40000;
    const auto drawn = frequencies({temperature, 0, 1.0F, 11}, logits, draws);
    double total = 0;
    for (const float logit : logits) total += std::exp(double{logit} / temperature);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = std::exp(double{logits[i]} / temperature) / total;
      const auto found = drawn.find(static_cast<std::int32_t>(i));
      EXPECT_NEAR(found == drawn.end() ? 0 : found->second, p, 5 * std::sqrt(p * (1 - p) / draws));
    }
  }
}

TEST(Sampler, TopKKeepsTheKLargestAndOfEqualsTheLowestIds) {
  const std::vector<float> logits = {1.0F, 2.0F, 1.0F, 3.0F, 1.0F};
  const auto drawn = frequencies({1.0F, 3, 1.0F, 5}, logits, 5000);
  EXPECT_THAT(drawn, testing::ElementsAre(testing::Key(0), testing::Key(1), testing::Key(3)));
  EXPECT_THAT(frequencies({1.0F, 1, 1.0F, 5}, logits, 100), testing::ElementsAre(testing::Key(3)));
}

// Probabilities 0.5, 0.25, 0.125, 0.125.
TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  const std::vector<float> logits = {std::log(1.0F), std::log(4.0F), std::log(2.0F),
                                     std::log(1.0F)};
  EXPECT_EQ(frequencies({1.0F, 0, 0.45F, 5}, logits, 2000).size(), 1U);
  EXPECT_EQ(frequencies({1.0F, 0, 0.6F, 5}, logits, 2000).size(), 2U);
  EXPECT_THAT(frequencies({1.0F, 0, 0.8F, 5}, logits, 2000),
              testing::ElementsAre(testing::Key(0), testing::Key(1), testing::Key(2)));
  EXPECT_EQ(frequencies({1.0F, 0, 1e-6F, 5}, logits, 100).size(), 1U);
}

TEST(Sampler, ASeedFixesTheDraws) {
  std::vector<float> logits(100);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7);
  const auto draw = [&](std::uint64_t seed) {
    Sampler source = sampler({1.0F, 0, 1.0F, seed});
    std::vector<std::int32_t> ids(20);
    for (auto& id : ids) id = *source.sample(logits);
    return ids;
  };
  EXPECT_EQ(draw(3), draw(3));
  EXPECT_NE(draw(3), draw(4));
}

// The generator is splitmix64, whose first outputs for seed 0 are published: with two equally
// likely tokens its top bit is the draw.
TEST(Sampler, DrawsAreThoseOfSplitmix64) {
  Sampler source = sampler({1.0F, 0, 1.0F, 0});
  const std::vector<float> logits = {0.0F, 0.0F};
  for (const std::uint64_t output :
       {0xE220A8397B1DCDAFU, 0x6E789E6AA1B965F4U, 0x06C45D188009454FU, 0xF88BB8A8724C81ECU}) {
    EXPECT_EQ(*source.sample(logits), static_cast<std::int32_t>(output >> 63));
  }
}

TEST(Sampler, RefusesParametersAndLogitsThatMakeNoSense) {
  const auto refused = [](const SamplingParams& params) {
    const auto made = Sampler::create(params);
    return made ? std::string() : made.error().message();
  };
  EXPECT_THAT(refused({-1.0F, 0, 1.0F, 0}), HasSubstr("temperature is -1"));
  EXPECT_THAT(refused({std::nanf(""), 0, 1.0F, 0}), HasSubstr("temperature is nan"));
  EXPECT_THAT(refused({1.0F, -2, 1.0F, 0}), HasSubstr("top_k is -2"));
  EXPECT_THAT(refused({1.0F, 0, 0.0F, 0}), HasSubstr("top_p is 0"));
  EXPECT_THAT(refused({1.0F, 0, 1.5F, 0}), HasSubstr("top_p is 1.5"));
  Sampler source = sampler({});
  EXPECT_FALSE(source.sample({}));
  const auto nan = source.sample(std::vector<float>{1.0F, std::nanf("")});
  ASSERT_FALSE(nan);
  EXPECT_THAT(nan.error().message(), HasSubstr("logit 1 of 2 is NaN"));
}

}  // namespace
}  // namespace fewbit
