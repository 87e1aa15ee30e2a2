// SPDX-License-Identifier: Apache-2.0
#include "moe/router.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "fewbit/moe.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;

constexpr float infinity = std::numeric_limits<float>::infinity();

struct Routed {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

// Routes one token.
Result<Routed> routed(const RouterParams& params, const std::vector<float>& logits,
                      const std::vector<float>& bias = {}) {
  const auto k = static_cast<std::size_t>(params.top_k);
  Routed r{std::vector<std::int32_t>(k, -7), std::vector<float>(k, -7)};
  FEWBIT_TRY(
      route(params, 1, static_cast<std::int64_t>(logits.size()), logits, bias, r.ids, r.weights));
  return r;
}

auto near(double value) { return FloatNear(static_cast<float>(value), 1e-6F); }
float ln(double x) { return static_cast<float>(std::log(x)); }

TEST(Router, SoftmaxWeighsOverAllExpertsOrOverTheChosen) {
  const std::vector<float> logits{ln(1), ln(2), ln(4), ln(3)};
  const auto all = routed({.top_k = 2, .renormalize = false}, logits);
  EXPECT_THAT(all->ids, ElementsAre(2, 3));
  EXPECT_THAT(all->weights, ElementsAre(near(0.4), near(0.3)));
  const auto chosen = routed({.top_k = 2, .renormalize = true}, logits);
  EXPECT_THAT(chosen->weights, ElementsAre(near(4.0 / 7), near(3.0 / 7)));
}

TEST(Router, SigmoidAndSqrtSoftplusScoreEachExpertAlone) {
  const std::vector<float> logits{0, ln(3), -1000};
  const auto s = routed({.score = Score::sigmoid, .top_k = 2, .renormalize = false}, logits);
  EXPECT_THAT(s->ids, ElementsAre(1, 0));
  EXPECT_THAT(s->weights, ElementsAre(near(0.75), near(0.5)));
  // log(1 + exp(log(e^4 - 1))) = 4; a large x gives sqrt(x).
  const auto p = routed({.score = Score::sqrt_softplus, .top_k = 2, .renormalize = false},
                        {ln(std::exp(4.0) - 1), 10000});
  EXPECT_THAT(p->weights, ElementsAre(near(100), near(2)));
}

TEST(Router, TiesGoToTheLowerId) {
  EXPECT_THAT(routed({.top_k = 3}, {1, 2, 1, 2, 1})->ids, ElementsAre(1, 3, 0));
}

// Sigmoid rounds both to 1; the logits still tell them apart.
TEST(Router, SaturatedScoresKeepTheOrderOfTheLogits) {
  EXPECT_THAT(routed({.score = Score::sigmoid, .top_k = 2}, {50, 60, 40})->ids, ElementsAre(1, 0));
}

TEST(Router, BiasChoosesButNeverWeighs) {
  const auto r = routed({.score = Score::sigmoid, .top_k = 2, .renormalize = true},
                        {0, ln(3), ln(1.0 / 3)}, {0, -1, 10});
  EXPECT_THAT(r->ids, ElementsAre(2, 0));
  EXPECT_THAT(r->weights, ElementsAre(near(0.25 / 0.75), near(0.5 / 0.75)));
}

TEST(Router, ScalingMultipliesWithAndWithoutRenormalisation) {
  RouterParams params{.score = Score::sigmoid, .top_k = 1, .renormalize = true, .scaling = 2.5F};
  EXPECT_THAT(routed(params, {0, -1})->weights, ElementsAre(near(2.5)));
  params.renormalize = false;
  EXPECT_THAT(routed(params, {0, -1})->weights, ElementsAre(near(1.25)));
}

TEST(Router, GroupsWithoutABiasAreScoredByTheirLargest) {
  // Group 0 has the largest logit, group 1 the larger sum.
  const auto r = routed({.score = Score::sigmoid, .top_k = 2, .num_groups = 2, .top_groups = 1},
                        {3, -9, 2, 2});
  EXPECT_THAT(r->ids, ElementsAre(0, 1));
}

TEST(Router, GroupsWithABiasAreScoredByTheirTwoLargest) {
  const auto r = routed({.score = Score::sigmoid, .top_k = 2, .num_groups = 2, .top_groups = 1},
                        {3, -9, -9, 2, 2, -9}, {0, 0, 0, 0, 0, 0});
  EXPECT_THAT(r->ids, ElementsAre(3, 4));
}

// A mask of zero instead of minus infinity would choose from the closed group here.
TEST(Router, NegativeBiasesNeverOpenAClosedGroup) {
  const auto r = routed({.score = Score::sigmoid, .top_k = 2, .num_groups = 2, .top_groups = 1},
                        {0, 0, 0, 0}, {-5, -6, -3, -4});
  EXPECT_THAT(r->ids, ElementsAre(2, 3));
}

TEST(Router, GroupsOfOneExpertWorkWithABias) {
  const auto r = routed({.score = Score::sigmoid, .top_k = 2, .num_groups = 3, .top_groups = 2},
                        {0, 1, 2}, {0, 0, 0});
  EXPECT_THAT(r->ids, ElementsAre(2, 1));
}

TEST(Router, MinusInfinityMasksAnExpert) {
  const auto r = routed({.top_k = 2}, {-infinity, 1, -infinity});
  EXPECT_THAT(r->ids, ElementsAre(1, 0));
  EXPECT_THAT(r->weights, ElementsAre(1.0F, 0.0F));
  const auto none = routed({.score = Score::sigmoid, .top_k = 1}, std::vector<float>(3, -infinity));
  EXPECT_THAT(none->weights, ElementsAre(0.0F));
}

// Against a plain sort of all experts.
TEST(Router, ManyExpertsAndTokensAgreeWithAFullSort) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 2);
  constexpr std::size_t tokens = 9;
  constexpr std::size_t experts = 160;
  constexpr std::size_t top_k = 8;
  std::vector<float> logits(tokens * experts);
  for (float& x : logits) x = normal(random);
  std::vector<std::int32_t> ids(tokens * top_k);
  std::vector<float> weights(tokens * top_k);
  ASSERT_TRUE(route({.top_k = top_k}, tokens, experts, logits, {}, ids, weights));
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<std::int32_t> order(experts);
    for (std::size_t e = 0; e < experts; ++e) order[e] = static_cast<std::int32_t>(e);
    const auto logit = [&](std::int32_t e) {
      return logits[t * experts + static_cast<std::size_t>(e)];
    };
    std::ranges::stable_sort(order, [&](auto a, auto b) { return logit(a) > logit(b); });
    double sum = 0;
    for (std::size_t k = 0; k < top_k; ++k) sum += std::exp(double{logit(order[k])});
    for (std::size_t k = 0; k < top_k; ++k) {
      EXPECT_EQ(ids[t * top_k + k], order[k]);
      EXPECT_NEAR(weights[t * top_k + k], std::exp(double{logit(order[k])}) / sum, 1e-7);
    }
  }
}

std::string error_of(const RouterParams& params, const std::vector<float>& logits,
                     const std::vector<float>& bias = {}) {
  const auto r = routed(params, logits, bias);
  return r ? "no error" : r.error().message();
}

TEST(Router, RefusesParametersThatDoNotFit) {
  EXPECT_EQ(error_of({.top_k = 4}, {1, 2, 3}), "route: top_k 4, expected 1 to 3 (experts)");
  EXPECT_EQ(error_of({.num_groups = 2}, {1, 2, 3}), "route: 3 experts do not divide into 2 groups");
  EXPECT_EQ(error_of({.num_groups = 2, .top_groups = 3}, {1, 2}),
            "route: top_groups 3, expected 1 to 2 (num_groups)");
  EXPECT_EQ(error_of({.top_k = 2, .num_groups = 4}, {1, 2, 3, 4}),
            "route: top_k 2 of 1 groups of 1 experts: only 1 candidates");
  EXPECT_EQ(error_of({}, {1, 2, 3}, {1, 2}), "route: bias holds 2 elements, expected 3 (experts)");
}

TEST(Router, RefusesNumbersWithoutAnOrder) {
  EXPECT_THAT(error_of({}, {1, std::nanf(""), 3}), HasSubstr("token 0, expert 1 is NaN"));
  EXPECT_THAT(error_of({}, {1, 2, infinity}), HasSubstr("token 0, expert 2 is inf"));
  EXPECT_THAT(error_of({}, {-infinity, -infinity}), HasSubstr("all 2 logits of token 0 are -inf"));
  EXPECT_THAT(error_of({}, {1, 2}, {0, -infinity}), HasSubstr("bias of expert 1 is -inf"));
}

TEST(Router, RefusesSpansOfOtherSizes) {
  std::vector<float> logits(6);
  std::vector<std::int32_t> ids(2);
  std::vector<float> weights(2);
  const RouterParams params{.top_k = 1};
  const auto message = [&](std::int64_t tokens, std::int64_t experts) {
    const auto r = route(params, tokens, experts, logits, {}, ids, weights);
    return r ? std::string("no error") : r.error().message();
  };
  EXPECT_EQ(message(2, 3), "no error");
  EXPECT_THAT(message(2, 4), HasSubstr("logits hold 6 elements, expected 2 tokens * 4 experts"));
  EXPECT_THAT(message(3, 2), HasSubstr("ids hold 2 elements, expected 3 tokens * top_k 1"));
  EXPECT_THAT(message(-1, 2), HasSubstr("-1 tokens"));
  EXPECT_THAT(message(2, 0), HasSubstr("0 experts"));
  weights.resize(3);
  EXPECT_THAT(message(2, 3), HasSubstr("weights hold 3 elements, expected 2 tokens * top_k 1"));
}

}  // namespace
}  // namespace fewbit
