// SPDX-License-Identifier: Apache-2.0
// The formulas on layers small enough to compute by hand.
#include "backends/reference/moe_reference.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backends/moe_case.hpp"
#include "moe/activation.hpp"

namespace fewbit {
namespace {

using test::f32_matrix;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;

// One expert with two columns: gate rows 1 and 2, up rows 10 and 20, down the identity.
MoeWeights two_columns() {
  MoeWeights weights{.hidden_size = 2, .intermediate_size = 2, .experts = {}};
  weights.experts.push_back({.gate = f32_matrix(2, 2, {1, 0, 2, 0}),
                             .up = f32_matrix(2, 2, {10, 0, 20, 0}),
                             .down = f32_matrix(2, 2, {1, 0, 0, 1})});
  return weights;
}

Result<MoeReferenceResult> one_token(const MoeWeights& weights, const std::vector<float>& x,
                                     const std::vector<std::int32_t>& ids,
                                     const std::vector<float>& router,
                                     const MoeReferenceOptions& options,
                                     const std::vector<std::int32_t>& map = {}) {
  return moe_reference(
      weights,
      {.tokens = 1, .hidden = x, .topk_ids = ids, .topk_weights = router, .expert_map = map},
      options);
}

TEST(MoeReference, PairsEachGateRowWithItsUpRow) {
  const auto r = one_token(two_columns(), {1, 0}, {0}, {1}, {});
  EXPECT_THAT(r->trace.fc1, ElementsAre(1, 2, 10, 20));
  EXPECT_THAT(r->out,
              ElementsAre(DoubleNear(silu(1.0) * 10, 1e-14), DoubleNear(silu(2.0) * 20, 1e-14)));
}

TEST(MoeReference, RouterWeightOnEitherSide) {
  const auto out = one_token(two_columns(), {1, 0}, {0}, {0.5F}, {});
  EXPECT_NEAR(out->out[0], silu(1.0) * 10 * 0.5, 1e-14);
  const auto in = one_token(two_columns(), {1, 0}, {0}, {0.5F},
                            {.activation = {}, .router_weight_side = RouterWeightSide::input});
  EXPECT_NEAR(in->out[0], silu(0.5) * 5, 1e-14);
}

TEST(MoeReference, GateUpAndDownKeepTheirOwnGlobalScales) {
  MoeWeights weights = two_columns();
  weights.experts[0].gate->global_scale = 2;
  weights.experts[0].up.global_scale = 3;
  weights.experts[0].down.global_scale = 5;
  const auto r = one_token(weights, {1, 0}, {0}, {1}, {});
  EXPECT_NEAR(r->out[0], silu(2.0) * 30 * 5, 1e-12);
}

TEST(MoeReference, NonGatedExpertsHaveOneBlock) {
  MoeWeights weights{.hidden_size = 2, .intermediate_size = 1, .experts = {}};
  weights.experts.push_back(
      {.gate = std::nullopt, .up = f32_matrix(1, 2, {1, 2}), .down = f32_matrix(2, 1, {1, -1})});
  const MoeReferenceOptions relu2{.activation = {.kind = Activation::relu2}};
  const auto r = one_token(weights, {1, 1}, {0}, {0.5F}, relu2);
  EXPECT_THAT(r->trace.fc1, ElementsAre(3));
  EXPECT_THAT(r->trace.activated, ElementsAre(9));
  EXPECT_THAT(r->out, ElementsAre(4.5, -4.5));
  EXPECT_THAT(one_token(weights, {-1, -1}, {0}, {1}, relu2)->out, ElementsAre(0, 0));
}

TEST(MoeReference, DroppedRoutesAddNothingAndDuplicatesAddTwice) {
  const double once = silu(1.0) * 10;
  const MoeWeights weights = two_columns();
  EXPECT_NEAR(one_token(weights, {1, 0}, {0, 0}, {1, 0.5F}, {})->out[0], 1.5 * once, 1e-14);
  const auto dropped = one_token(weights, {1, 0}, {-1, 1}, {1, 1}, {});
  EXPECT_THAT(dropped->out, ElementsAre(0, 0));
  EXPECT_THAT(dropped->trace.activated, testing::Each(0));
  // Global expert 1 is the local 0.
  const auto mapped = one_token(weights, {1, 0}, {0, 1}, {1, 0.5F}, {}, {-1, 0});
  EXPECT_NEAR(mapped->out[0], 0.5 * once, 1e-14);
}

// 1 + 2^-7 is a bf16 number, 1 + 2^-8 rounds to 1, 1 + 3 * 2^-8 to 1 + 2^-6.
TEST(MoeReference, StagedRoundsEveryStage) {
  MoeWeights weights{.hidden_size = 1, .intermediate_size = 1, .experts = {}};
  const auto eps = [](int power) { return std::ldexp(1.0F, power); };
  weights.experts.push_back({.gate = std::nullopt,
                             .up = f32_matrix(1, 1, {1 + 3 * eps(-8)}),
                             .down = f32_matrix(1, 1, {1 + eps(-8)})});
  const auto r =
      one_token(weights, {1}, {0}, {1},
                {.activation = {.kind = Activation::relu2}, .rounding = MoeRounding::staged_bf16});
  EXPECT_EQ(r->trace.fc1[0], 1 + eps(-6));
  // (1 + 2^-6)^2 = 1 + 2^-5 + 2^-12
  EXPECT_EQ(r->trace.activated[0], 1 + eps(-5));
  // (1 + 2^-5)(1 + 2^-8) = 1 + 2^-5 + 2^-8 + 2^-13: above the middle
  EXPECT_EQ(r->trace.fc2[0], 1 + eps(-5) + eps(-7));
  EXPECT_EQ(r->out[0], r->trace.fc2[0]);
}

TEST(MoeReference, AmaxHoldsTheLargestInputAndActivatedMagnitudes) {
  MoeWeights weights = two_columns();
  weights.experts.push_back(weights.experts[0]);
  const auto r = one_token(weights, {1, -3}, {1}, {1}, {});
  EXPECT_THAT(r->amax, ElementsAre(0, 0, 3, static_cast<float>(silu(2.0) * 20)));
}

TEST(MoeReference, RefusesInputsThatDoNotFit) {
  const MoeWeights weights = two_columns();
  EXPECT_THAT(one_token(weights, {1}, {0}, {1}, {}).error().message(),
              HasSubstr("hidden holds 1 elements, expected 1 tokens * 2"));
  EXPECT_THAT(one_token(weights, {1, 1}, {0, 0}, {1}, {}).error().message(),
              HasSubstr("2 ids but 1 router weights"));
  EXPECT_THAT(one_token(weights, {1, 1}, {0}, {1}, {.activation = {.kind = Activation::relu2}})
                  .error()
                  .message(),
              HasSubstr("expert 0 has a gate, but relu2 needs none"));
}

}  // namespace
}  // namespace fewbit
