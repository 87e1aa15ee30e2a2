// SPDX-License-Identifier: Apache-2.0
#include "select/rank_problem.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "select/decide_layer.hpp"
#include "select/problem_list.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

MoeProblem layer(std::int64_t intermediate, const char* scheme) {
  MoeProblem problem;
  problem.hidden_size = 2048;
  problem.intermediate_size = intermediate;
  problem.num_experts = 8;
  problem.top_k = 2;
  problem.gate_up = scheme_from_name(scheme).value();
  problem.down = problem.gate_up;
  problem.where = "layer 3";
  return problem;
}

constexpr int counts[] = {1, 2, 4, 8, 16};

std::vector<int> legal(const std::vector<RankVerdict>& verdicts) {
  std::vector<int> ranks;
  for (const RankVerdict& verdict : verdicts) {
    if (verdict.refusals.empty()) ranks.push_back(verdict.ranks);
  }
  return ranks;
}

std::vector<int> tensor_sizes(const char* backend, const MoeProblem& problem, const char* device) {
  return legal(
      legal_splits(*find_backend(backend), problem, *describe_device(device), counts).tensor);
}

TEST(RankProblem, IsOneEvenShare) {
  const auto share = rank_problem(layer(768, "nvfp4"), {.tensor = 4, .expert = 2});
  ASSERT_TRUE(share);
  EXPECT_EQ(share->intermediate_size, 192);
  EXPECT_EQ(share->num_experts, 4);
  EXPECT_EQ(share->routed_experts, 8);
  EXPECT_EQ(share->parallel.tensor, 4);
}

TEST(RankProblem, SizesThatDoNotDivideAreRefusedWithThoseThatDo) {
  const auto tensor = rank_problem(layer(352, "nvfp4"), {.tensor = 3});
  ASSERT_FALSE(tensor);
  EXPECT_EQ(
      tensor.error().message(),
      "layer 3 tensor_ranks: 3 ranks can't share 352 intermediate features equally: 352 / 3 = "
      "117.333; legal, in whole runs of 16: 1, 2, 11, 22");
  const auto expert = rank_problem(layer(352, "nvfp4"), {.expert = 16});
  ASSERT_FALSE(expert);
  EXPECT_EQ(expert.error().message(),
            "layer 3 expert_ranks: 16 ranks can't share 8 experts equally: 8 / 16 = 0.5; legal: "
            "1, 2, 4, 8");
}

// What check, explain and prepare say is one thing: whole groups, the first ranks one more.
TEST(RankProblem, WholeUnitsAreDealtUnevenly) {
  const MoeProblem whole = layer(128, "nvfp4");
  const auto three = rank_problem(whole, {.tensor = 3, .expert = 3}, Dealing::whole_units);
  ASSERT_TRUE(three);
  EXPECT_EQ(three->intermediate_size, 48);
  EXPECT_EQ(three->num_experts, 3);
  const auto sixteen = rank_problem(whole, {.tensor = 16}, Dealing::whole_units);
  ASSERT_FALSE(sixteen);
  EXPECT_EQ(sixteen.error().message(),
            "layer 3 tensor_ranks: 16 ranks can't share 128 intermediate features: they are 8 runs "
            "of 16, at least one a rank; legal: 1 to 8");
  EXPECT_EQ(rank_problem(layer(200, "nvfp4"), {}, Dealing::whole_units)->intermediate_size, 200);
}

// An engine cuts evenly, so a group of 128 ends where a share of 192 does not.
TEST(LegalSplits, EnginesNeedWholeGroupsInEvenShares) {
  EXPECT_EQ(tensor_sizes("marlin", layer(768, "gptq-int4-g128"), "sm_90"),
            (std::vector<int>{1, 2}));
  EXPECT_EQ(tensor_sizes("marlin", layer(640, "gptq-int4-g128"), "sm_90"), std::vector<int>{1});
  EXPECT_EQ(tensor_sizes("marlin", layer(640, "gptq-int4-g32"), "sm_90"),
            (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(tensor_sizes("marlin", layer(1856, "nvfp4"), "sm_90"), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(tensor_sizes("flashinfer_cutlass", layer(1856, "nvfp4"), "sm_100"),
            std::vector<int>{1});
  EXPECT_EQ(tensor_sizes("vllm_triton", layer(1408, "fp8-block"), "sm_90"), std::vector<int>{1});
  const auto splits = legal_splits(*find_backend("marlin"), layer(768, "gptq-int4-g128"),
                                   *describe_device("sm_90"), counts);
  EXPECT_EQ(
      refusals_text(splits.tensor[2].refusals),
      "shape: needs intermediate_size % 128 = 0, has 192 (1.5 groups of 128: padding does not "
      "mend a cut one)");
}

// Also of kernels whose own sizes are not public.
TEST(LegalSplits, NoEngineCutsAGroupOrBlockOfScales) {
  const std::vector<int> whole_16 = tensor_sizes("humming", layer(1856, "nvfp4"), "sm_120");
  EXPECT_EQ(whole_16, (std::vector<int>{1, 2, 4}));
  for (const char* scheme : {"ct-int4-g128", "awq-int4-g128", "fp8-block"}) {
    SCOPED_TRACE(scheme);
    EXPECT_EQ(tensor_sizes("humming", layer(768, scheme), "sm_90"), (std::vector<int>{1, 2}));
  }
  EXPECT_EQ(tensor_sizes("vllm_emulation_int4", layer(768, "awq-int4-g128"), "sm_90"),
            (std::vector<int>{1, 2}));
  EXPECT_EQ(tensor_sizes("humming", layer(352, "awq-int4-g32"), "sm_90"), std::vector<int>{1});
  const auto splits = legal_splits(*find_backend("flashinfer_cutlass"), layer(352, "nvfp4"),
                                   *describe_device("sm_100"), counts);
  EXPECT_THAT(refusals_text(splits.tensor[1].refusals),
              HasSubstr("needs intermediate_size % 64 = 0, has 176 (would fit if padded to 192"));
}

// Sizes of published models that fill no tile: padding to a tile is the engine's own affair, but a
// group is never cut.
TEST(LegalSplits, OddSizesAreLegalWhereGroupsStayWhole) {
  const struct {
    std::int64_t size;
    std::vector<int> nvfp4;
    std::vector<int> int4_g128;
    std::vector<int> int4_g32;
  } cases[] = {
      {192, {1, 2, 4}, {}, {1, 2}},        {352, {1, 2}, {}, {1}},
      {640, {1, 2, 4, 8}, {1}, {1, 2, 4}}, {1408, {1, 2, 4, 8}, {1}, {1, 2, 4}},
      {1856, {1, 2, 4}, {}, {1, 2}},       {2880, {1, 2, 4}, {}, {1, 2}},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(tensor_sizes("marlin", layer(one.size, "nvfp4"), "sm_90"), one.nvfp4) << one.size;
    EXPECT_EQ(tensor_sizes("marlin", layer(one.size, "gptq-int4-g128"), "sm_90"), one.int4_g128)
        << one.size;
    EXPECT_EQ(tensor_sizes("marlin", layer(one.size, "gptq-int4-g32"), "sm_90"), one.int4_g32)
        << one.size;
  }
}

// Static order keeps groups as runs of columns; group order lets any columns go anywhere, but every
// rank then holds all scales and nothing can be padded.
TEST(LegalSplits, ActOrderKeepsItsScalesWhole) {
  EXPECT_EQ(tensor_sizes("marlin", layer(768, "gptq-int4-g128-static"), "sm_90"),
            (std::vector<int>{1, 2}));
  EXPECT_EQ(tensor_sizes("marlin", layer(1024, "gptq-int4-g128-actorder"), "sm_90"),
            (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(tensor_sizes("reference", layer(640, "gptq-int4-g128-actorder"), "cpu:generic"),
            (std::vector<int>{1, 2, 4, 8, 16}));
}

// gpt-oss's loaders: ceil(90 groups / ranks) groups each, the last rank padded.
TEST(LegalSplits, MxFp4OfGptOssIsPaddedToWholeGroups) {
  MoeProblem whole = layer(2880, "mxfp4");
  whole.hidden_size = 2880;
  whole.activation = {.kind = Activation::swigluoai};
  ASSERT_EQ(dealing_of(Engine::vllm, whole), Dealing::padded_units);
  ASSERT_EQ(dealing_of(Engine::sglang, whole), Dealing::padded_units);
  EXPECT_EQ(dealing_of(Engine::flashinfer, whole), Dealing::even);
  const auto share = [&](int ranks) {
    const auto one = rank_problem(whole, {.tensor = ranks}, Dealing::padded_units);
    return one ? std::to_string(one->intermediate_size) : one.error().message();
  };
  EXPECT_EQ(share(2), "1440");
  EXPECT_EQ(share(4), "736");
  EXPECT_EQ(share(8), "384");
  // 15 shares of 6 groups are all there are; 7 does not divide 2880.
  EXPECT_EQ(share(16),
            "layer 3 tensor_ranks: 16 ranks can't share 2880 intermediate features: they are 90 "
            "runs of 32, 6 a rank, which leaves none for the last; legal: 1 to 6, 8 to 10, 12, 15, "
            "18, 30, 45, 90");
  EXPECT_THAT(share(7),
              HasSubstr("7 ranks can't share 2880 intermediate features equally: 2880 / 7 "
                        "= 411.429; legal, in whole runs of 32: 1 to 6, 8 to 10"));
  EXPECT_EQ(tensor_sizes("marlin", whole, "sm_90"), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(tensor_sizes("flashinfer_trtllm_mxfp4", whole, "sm_100"),
            (std::vector<int>{1, 2, 4, 8}));
  const auto splits =
      legal_splits(*find_backend("marlin"), whole, *describe_device("sm_90"), counts);
  EXPECT_EQ(refusals_text(splits.tensor[4].refusals),
            "shape: needs 16 shares of 192, whole groups of 32, in intermediate_size, has 15 in "
            "2880");
  // Other models' loaders cut evenly.
  whole.activation = {};
  EXPECT_EQ(dealing_of(Engine::vllm, whole), Dealing::even);
  EXPECT_EQ(tensor_sizes("marlin", whole, "sm_90"), (std::vector<int>{1, 2}));
}

// What runs here takes whole groups dealt unevenly.
TEST(LegalSplits, OursMayBeUneven) {
  EXPECT_EQ(tensor_sizes("cpu_generic", layer(192, "nvfp4-w4a16"), "cpu:generic"),
            (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(tensor_sizes("cpu_generic", layer(352, "nvfp4-w4a16"), "cpu:generic"),
            (std::vector<int>{1, 2, 4, 8, 16}));
  const auto splits = legal_splits(*find_backend("reference"), layer(640, "gptq-int4-g128"),
                                   *describe_device("cpu:generic"), counts);
  EXPECT_EQ(legal(splits.tensor), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(refusals_text(splits.tensor[3].refusals),
            "shape: needs 8 whole groups of 128 in intermediate_size, has 5 in 640");
  EXPECT_EQ(legal(splits.expert), (std::vector<int>{1, 2, 4, 8}));
  EXPECT_THAT(refusals_text(splits.expert[4].refusals),
              HasSubstr("shape: needs at least 16 experts, has 8"));
}

// Weights with one scale a row could be cut anywhere, at packed words; kernels take whole runs of
// 16, so these are what is dealt, and every rank gets the same backend.
TEST(SpreadOf, SharesAreRunsThatTheKernelsTake) {
  const struct {
    const char* scheme;
    std::int64_t size;
    int ranks;
    std::int64_t unit;
    std::vector<std::int64_t> shares;
  } cases[] = {
      {"gptq-int4-channel", 768, 5, 16, {160, 160, 160, 144, 144}},
      {"gptq-int4-channel", 1408, 3, 16, {480, 464, 464}},
      {"ct-int4-channel", 768, 5, 16, {160, 160, 160, 144, 144}},
      {"ct-int8-channel", 768, 5, 16, {160, 160, 160, 144, 144}},
      {"gptq-int8-channel", 352, 4, 16, {96, 96, 80, 80}},
      {"fp8-channel", 768, 5, 16, {160, 160, 160, 144, 144}},
      {"fp8-tensor", 768, 7, 16, {112, 112, 112, 112, 112, 112, 96}},
      // Even shares that fit, groups, and what is read in place need no more than they did.
      {"fp8-channel", 768, 4, 1, {192, 192, 192, 192}},
      {"gptq-int4-g32", 768, 5, 32, {160, 160, 160, 160, 128}},
      {"bf16", 768, 5, 1, {154, 154, 154, 153, 153}},
  };
  const DeviceInfo device = *describe_device("cpu:generic");
  for (const auto& one : cases) {
    SCOPED_TRACE(std::string(one.scheme) + " " + std::to_string(one.size));
    const MoeProblem whole = layer(one.size, one.scheme);
    const Parallel parallel{.tensor = one.ranks};
    const Spread spread = spread_of(*find_backend("cpu_generic"), whole, device, parallel);
    EXPECT_EQ(refusals_text(spread.refusals), "");
    EXPECT_EQ(spread.unit, one.unit);
    const auto shares = rank_shares(whole, parallel, Dealing::whole_units, spread.unit);
    ASSERT_TRUE(shares);
    EXPECT_EQ(shares->features, one.shares);
    EXPECT_EQ(shares->intermediate_size, one.shares);
    const auto chosen =
        decide_layer(whole, parallel, device, {.backend = "", .engine = Engine::fewbit});
    ASSERT_TRUE(chosen);
    EXPECT_FALSE(chosen->refused);
    EXPECT_EQ(chosen->selection.chosen, "cpu_generic");
  }
}

// The first rank's share alone says nothing of the others.
TEST(SpreadOf, EveryRanksShareIsJudged) {
  const DeviceInfo device = *describe_device("cpu:generic");
  const auto refused = [&](std::int64_t size, int ranks) {
    const MoeProblem whole = layer(size, "gptq-int4-channel");
    const Parallel parallel{.tensor = ranks};
    const auto forced =
        decide_layer(whole, parallel, device, {.backend = "cpu_generic", .engine = Engine::fewbit});
    EXPECT_TRUE(forced && forced->refused);
    EXPECT_EQ(decide_layer(whole, parallel, device, {})->selection.chosen, "reference");
    return forced && forced->refused ? forced->refused->what : "";
  };
  // 16, 16, 16, 8, 8: the first would do.
  EXPECT_THAT(refused(64, 5), HasSubstr("needs intermediate_size % 16 = 0, has 8"));
  // 64, 64, 72: only the last one, which is odd, would not.
  EXPECT_THAT(refused(200, 3), HasSubstr("needs intermediate_size % 16 = 0, has"));
}

// Sizes over the ranks of both kinds; a padded rank has fewer features than its matrices.
TEST(RankShares, AreThoseOfEveryRank) {
  MoeProblem whole = layer(2880, "mxfp4");
  whole.activation = {.kind = Activation::swigluoai};
  const auto shares = rank_shares(whole, {.tensor = 4, .expert = 2}, Dealing::padded_units);
  ASSERT_TRUE(shares);
  EXPECT_EQ(shares->features, (std::vector<std::int64_t>{736, 736, 736, 672}));
  EXPECT_EQ(shares->intermediate_size, (std::vector<std::int64_t>{736, 736, 736, 736}));
  EXPECT_EQ(shares->num_experts, (std::vector<std::int64_t>{4, 4}));
  const auto uneven =
      rank_shares(layer(64, "nvfp4"), {.tensor = 3, .expert = 3}, Dealing::whole_units);
  ASSERT_TRUE(uneven);
  EXPECT_EQ(uneven->features, (std::vector<std::int64_t>{32, 16, 16}));
  EXPECT_EQ(uneven->num_experts, (std::vector<std::int64_t>{3, 3, 2}));
}

// A share too large for the streaming kernel needs whole runs of 64, which half of this is not.
TEST(SpreadOf, CudaSharesOfLargeLayersAreRunsOf64) {
  MoeProblem whole = layer(28736, "nvfp4");
  DeviceInfo device = *describe_device("sm_90");
  device.built_for.push_back("sm_90a");
  const Parallel parallel{.tensor = 2};
  const Spread spread = spread_of(*find_backend("cuda_moe"), whole, device, parallel);
  EXPECT_EQ(refusals_text(spread.refusals), "");
  EXPECT_EQ(spread.unit, 64);
  const auto shares = rank_shares(whole, parallel, Dealing::whole_units, spread.unit);
  ASSERT_TRUE(shares);
  EXPECT_EQ(shares->features, (std::vector<std::int64_t>{14400, 14336}));
}

}  // namespace
}  // namespace fewbit
