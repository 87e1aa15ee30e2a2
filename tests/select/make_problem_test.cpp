// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/moe_case.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {
namespace {

using test::LayerSpec;
using testing::AllOf;
using testing::HasSubstr;

ModelConfig config() {
  ModelConfig config;
  config.hidden_size = 32;
  config.moe_intermediate_size = 48;
  config.num_experts = 4;
  config.router.top_k = 3;
  config.activation = {.kind = Activation::silu, .limit = 7.0F};
  return config;
}

TEST(MakeProblem, TakesSizesAndSchemesFromTheWeightsAndTheRestFromTheConfig) {
  const MoeWeights weights = test::random_weights({.weight = DType::f4_e2m1, .activation = {}});
  const auto problem = make_problem(weights, config(), DType::f32, 17);
  ASSERT_TRUE(problem) << problem.error().message();
  EXPECT_EQ(problem->hidden_size, 32);
  EXPECT_EQ(problem->intermediate_size, 48);
  EXPECT_EQ(problem->num_experts, 4);
  EXPECT_EQ(problem->top_k, 3);
  EXPECT_EQ(problem->gate_up, nvfp4_scheme());
  EXPECT_EQ(problem->down, nvfp4_scheme());
  EXPECT_EQ(problem->activation, config().activation);
  EXPECT_EQ(problem->activation_dtype, DType::f32);
  EXPECT_EQ(problem->router_weight_side, RouterWeightSide::output);
  EXPECT_FALSE(problem->expert_map);
  EXPECT_EQ(problem->max_tokens, 17);
}

TEST(MakeProblem, APartOfTheExpertsNeedsAMap) {
  const MoeWeights weights = test::random_weights({.experts = 2, .activation = {}});
  const auto problem = make_problem(weights, config(), DType::bf16, 1);
  ASSERT_TRUE(problem);
  EXPECT_EQ(problem->num_experts, 2);
  EXPECT_TRUE(problem->expert_map);
}

TEST(MakeProblem, BiasesAreToldOfTheProblem) {
  MoeWeights weights = test::random_weights({.activation = {}});
  EXPECT_FALSE(make_problem(weights, config(), DType::bf16, 1)->biases);
  weights.experts[1].down_bias.assign(32, 0.5F);
  const auto problem = make_problem(weights, config(), DType::bf16, 1);
  ASSERT_TRUE(problem);
  EXPECT_TRUE(problem->biases);
  const auto selection = select_backend(*problem, *describe_device("cpu:generic"));
  ASSERT_TRUE(selection) << selection.error().message();
  EXPECT_EQ(selection->chosen, "cpu_generic");
}

TEST(MakeProblem, NamesBothSchemesOfMixedExperts) {
  MoeWeights weights = test::random_weights({.activation = {}});
  weights.experts[2].down =
      test::random_weights({.weight = DType::f4_e2m1, .activation = {}}).experts[0].down;
  const auto down = make_problem(weights, config(), DType::bf16, 1);
  ASSERT_FALSE(down);
  EXPECT_EQ(down.error().code, ErrorCode::unsupported);
  EXPECT_THAT(down.error().what,
              AllOf(HasSubstr("expert 0 down is " + scheme_text(plain_scheme(DType::bf16))),
                    HasSubstr("but expert 2 down is " + scheme_text(nvfp4_scheme()))));
  weights = test::random_weights({.activation = {}});
  weights.experts[1].gate =
      test::random_weights({.weight = DType::f32, .activation = {}}).experts[0].gate;
  EXPECT_THAT(make_problem(weights, config(), DType::bf16, 1).error().what,
              AllOf(HasSubstr("expert 1 gate is f32"), HasSubstr("but expert 1 up is bf16")));
}

TEST(MakeProblem, RefusesSizesThatDisagreeWithTheConfig) {
  const MoeWeights weights = test::random_weights({.activation = {}});
  const auto message = [&](const ModelConfig& c) {
    const auto problem = make_problem(weights, c, DType::bf16, 1);
    return problem ? "no error" : problem.error().message();
  };
  ModelConfig c = config();
  c.hidden_size = 64;
  EXPECT_THAT(message(c), HasSubstr("hidden_size is 32 in the weights, 64 in the config"));
  c = config();
  c.moe_intermediate_size = 96;
  EXPECT_THAT(message(c), HasSubstr("intermediate_size is 48 in the weights, 96 in the config"));
  c = config();
  c.num_experts = 3;
  EXPECT_THAT(message(c), HasSubstr("4 in the weights, 3 in the config"));
  EXPECT_FALSE(make_problem({}, config(), DType::bf16, 1));
}

}  // namespace
}  // namespace fewbit
