// SPDX-License-Identifier: Apache-2.0
#include "select/problem_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fewbit {
namespace {

using testing::HasSubstr;

TEST(SchemeFromName, TellsProducerGroupsZerosAndOrder) {
  const Scheme gptq = scheme_from_name("gptq-int4-g32-actorder").value();
  EXPECT_EQ(gptq.producer, Producer::gptq);
  EXPECT_EQ(gptq.scale->granularity, (Granularity{1, 32}));
  EXPECT_EQ(gptq.act_order, ActOrder::group);
  EXPECT_FALSE(gptq.zero_points);
  EXPECT_TRUE(scheme_from_name("awq-int4-g128")->zero_points);
  const Scheme channel = scheme_from_name("ct-int8-channel").value();
  EXPECT_EQ(channel.weight, DType::u8);
  EXPECT_EQ(channel.scale->granularity, (Granularity{1, 0}));
  EXPECT_EQ(*scheme_from_name("nvfp4-w4a16"), nvfp4_scheme());
  EXPECT_EQ(scheme_from_name("nvfp4")->activation, DType::f4_e2m1);
  EXPECT_EQ(scheme_from_name("fp8-block")->scale->granularity, (Granularity{128, 128}));
  EXPECT_EQ(scheme_from_name("nf3")->weight, DType::nf3);
  const Scheme pairs = scheme_from_name("gguf-pq2_0").value();
  EXPECT_EQ(pairs.weight, DType::u2);
  EXPECT_EQ(pairs.scale->granularity, (Granularity{1, 128}));
  EXPECT_EQ(scheme_from_name("gguf-q5_k")->ggml_type, 13);
  for (const char* bad : {"gguf-", "gguf-q4_2", "gguf-i8", "", "int4", "gptq-int5", "gptq-int4-g",
                          "gptq-int4-g0", "awq-", "nvfp5"}) {
    const auto scheme = scheme_from_name(bad);
    ASSERT_FALSE(scheme) << bad;
    EXPECT_THAT(scheme.error().what, HasSubstr("means nothing"));
  }
}

TEST(ParseProblems, OneProblemForEachScheme) {
  const auto problems = parse_problems(
      "# comment\n\n"
      "A 64 32 8 2 swigluoai deepseek_v3 mxfp4,bf16 bias f32 input groups=4/2  # more\n"
      "B 16 16 1 1 relu2 other f16\n",
      "file");
  ASSERT_TRUE(problems) << problems.error().message();
  ASSERT_EQ(problems->size(), 3U);
  const MoeProblem& a = (*problems)[1].problem;
  EXPECT_EQ((*problems)[1].name, "A/bf16");
  EXPECT_EQ(a.hidden_size, 64);
  EXPECT_EQ(a.intermediate_size, 32);
  EXPECT_EQ(a.num_experts, 8);
  EXPECT_EQ(a.top_k, 2);
  EXPECT_EQ(a.activation.limit, 7.0F);
  EXPECT_EQ(a.routing, Routing::deepseek_v3);
  EXPECT_TRUE(a.biases);
  EXPECT_EQ(a.router_dtype, DType::f32);
  EXPECT_EQ(a.router_weight_side, RouterWeightSide::input);
  EXPECT_EQ(a.router_groups, 4);
  EXPECT_EQ(a.top_groups, 2);
  EXPECT_EQ(find_problem(*problems, "A")->where, "A/mxfp4");
  EXPECT_EQ(find_problem(*problems, "A/bf16")->where, "A/bf16");
  EXPECT_EQ(find_problem(*problems, "C").error().message(),
            "problem: no problem \"C\", known: A, B");
  EXPECT_EQ(find_problem(*problems, "A/f16").error().message(),
            "problem: no problem \"A/f16\", known schemes: mxfp4, bf16; did you mean A/bf16?");
}

TEST(ParseProblems, NamesTheLineAndWhatIsWrong) {
  const struct {
    const char* text;
    const char* message;
  } cases[] = {
      {"\nA", "file line 2: no hidden"},
      {"A 0", "file line 1: hidden is \"0\", expected 1 to 2147483647"},
      {"A 64 3000000000", "file line 1: intermediate is \"3000000000\""},
      {"A 64 32 8 9 silu other bf16", "file line 1: top_k 9 of 8 experts"},
      {"A 64 32 8 2 tanh other bf16", "\"tanh\""},
      {"A 64 32 8 2 silu best bf16", "unknown routing \"best\""},
      {"A 64 32 8 2 silu other", "file line 1: no schemes"},
      {"A 64 32 8 2 silu other bf17", "scheme \"bf17\": \"bf17\" means nothing"},
      {"A 64 32 8 2 silu other bf16 odd", "file line 1: unknown option \"odd\""},
      {"A 64 32 8 2 silu other bf16 groups=2/4", "\"groups=2/4\", expected groups=N/TOP"},
  };
  for (const auto& one : cases) {
    const auto problems = parse_problems(one.text, "file");
    ASSERT_FALSE(problems) << one.text;
    EXPECT_THAT(problems.error().message(), HasSubstr(one.message));
    EXPECT_THAT(problems.error().message(), HasSubstr("file line")) << one.text;
  }
}

}  // namespace
}  // namespace fewbit
