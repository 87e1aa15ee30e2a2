// SPDX-License-Identifier: Apache-2.0
#include "select/split_plan.hpp"

#include <gtest/gtest.h>

#include <string>

#include "scheme/small_checkpoint.hpp"
#include "select/split_axis.hpp"

namespace fewbit {
namespace {

// Sizes of published models that don't divide at their natural number of ranks.
TEST(SplitFit, KeepsGroupsWhole) {
  const struct {
    Cut cut;
    SplitFit fit;
    const char* text;
  } cases[] = {
      {{640, 128, 2}, SplitFit::uneven, "640 / 2 = 320, 2.5 groups of 128"},
      {{1536, 128, 8}, SplitFit::uneven, "1536 / 8 = 192, 1.5 groups of 128"},
      {{768, 128, 4}, SplitFit::uneven, "768 / 4 = 192, 1.5 groups of 128"},
      {{3072, 128, 16}, SplitFit::uneven, "3072 / 16 = 192, 1.5 groups of 128"},
      {{18432, 128, 32}, SplitFit::uneven, "18432 / 32 = 576, 4.5 groups of 128"},
      {{29568, 128, 2}, SplitFit::uneven, "29568 / 2 = 14784, 115.5 groups of 128"},
      {{13696, 128, 2}, SplitFit::uneven, "13696 / 2 = 6848, 53.5 groups of 128"},
      {{1280, 128, 8}, SplitFit::uneven, "1280 / 8 = 160, 1.25 groups of 128"},
      {{640, 16, 8}, SplitFit::even, "640 / 8 = 80, 5 groups of 16"},
      {{1856, 16, 4}, SplitFit::even, "1856 / 4 = 464, 29 groups of 16"},
      {{512, 128, 8}, SplitFit::none, "512 / 8 = 64, 0.5 groups of 128; there are only 4 of them"},
      {{2050, 1, 4}, SplitFit::uneven, "2050 / 4 = 512.5"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(fit_of(one.cut), one.fit) << one.text;
    EXPECT_TRUE(cut_text(one.cut, "groups").starts_with(one.text)) << cut_text(one.cut, "groups");
  }
  EXPECT_EQ(cut_text({29568, 128, 2}, "groups"),
            "29568 / 2 = 14784, 115.5 groups of 128; whole groups dealt unevenly: 1 rank with "
            "116, 1 with 115");
}

Module matrix(Role role, std::int64_t n, std::int64_t k, Scheme scheme) {
  Module module;
  module.name = "m";
  module.role = role;
  module.layer = 0;
  module.n = n;
  module.k = k;
  module.scheme = scheme;
  return module;
}

TEST(SplitAxis, FollowsRoleScalesAndPacking) {
  const Scheme nvfp4 = nvfp4_scheme();
  const SplitAxis down = split_axis(matrix(Role::down_proj, 64, 96, nvfp4));
  EXPECT_EQ(down.along, SplitAxis::Along::columns);
  EXPECT_EQ(down.size, 96);
  EXPECT_EQ(down.unit, 16);
  const SplitAxis fused = split_axis(matrix(Role::gate_up_proj, 96, 64, nvfp4));
  EXPECT_EQ(fused.along, SplitAxis::Along::rows);
  EXPECT_EQ(fused.size, 48);  // gate and up are cut one by one
  EXPECT_EQ(fused.unit, 1);
  Scheme block = plain_scheme(DType::f8_e4m3);
  block.scale = ScaleSpec{DType::f32, {128, 128}};
  EXPECT_EQ(split_axis(matrix(Role::up_proj, 256, 256, block)).unit, 128);
  Scheme words = plain_scheme(DType::u4);
  words.packing = Packing::words_n;
  words.scale = ScaleSpec{DType::f16, {1, 128}};
  EXPECT_EQ(split_axis(matrix(Role::up_proj, 256, 256, words)).unit, 8);
  EXPECT_EQ(split_axis(matrix(Role::down_proj, 256, 256, words)).unit, 128);
  words.weight = DType::u3;
  words.packing = Packing::words_k;
  words.scale->granularity.cols = 0;
  EXPECT_EQ(split_axis(matrix(Role::down_proj, 256, 256, words)).unit, 32);
  words.scale->granularity.cols = 128;
  words.act_order = ActOrder::group;
  const SplitAxis ordered = split_axis(matrix(Role::down_proj, 256, 256, words));
  EXPECT_TRUE(ordered.whole_scales);
  EXPECT_EQ(ordered.unit, 32);
  Scheme blocks = plain_scheme(DType::u8);
  blocks.ggml_type = 12;  // Q4_K
  EXPECT_EQ(split_axis(matrix(Role::down_proj, 256, 512, blocks)).unit, 256);
  EXPECT_EQ(split_axis(matrix(Role::router, 256, 512, nvfp4)).along, SplitAxis::Along::none);
}

SplitPlan plan_of(const std::vector<SplitPlan>& plans, int ranks) {
  for (const SplitPlan& plan : plans) {
    if (plan.ranks == ranks) return plan;
  }
  ADD_FAILURE() << "no plan of " << ranks;
  return {};
}

constexpr int counts[] = {1, 2, 3, 4, 8};

// Hidden 32, intermediate 16, 2 heads, 1 key/value head, vocabulary 64, 2 experts.
TEST(SplitPlan, WhatCanNotBeReadIsNotTakenToDivide) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  const Checkpoint checkpoint = small.open();
  Identified identified = *identify(checkpoint);
  for (Module& module : identified.modules) {
    if (module.expert != -1) module.unreadable = "odd";
  }
  const SplitSizes sizes = read_split_sizes(checkpoint);
  const auto tensor = tensor_splits(identified, sizes, counts);
  EXPECT_EQ(plan_of(tensor, 1).fit, SplitFit::even);
  const SplitPlan two = plan_of(tensor, 2);
  EXPECT_EQ(two.fit, SplitFit::none);
  EXPECT_EQ(two.experts_fit, SplitFit::none);
  ASSERT_FALSE(two.reasons.empty());
  EXPECT_EQ(two.reasons[0].what, "expert down_proj, gate_proj, up_proj (6 modules)");
  EXPECT_EQ(two.reasons[0].why, "not known of what can't be read: odd");
}

TEST(SplitPlan, NamesWhatDoesNotDivideAndWhy) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  const Checkpoint checkpoint = small.open();
  const Identified identified = *identify(checkpoint);
  const SplitSizes sizes = read_split_sizes(checkpoint);
  const auto tensor = tensor_splits(identified, sizes, counts);
  EXPECT_TRUE(plan_of(tensor, 1).reasons.empty());
  // One group of 16 columns for two ranks.
  const SplitPlan two = plan_of(tensor, 2);
  EXPECT_EQ(two.fit, SplitFit::none);
  ASSERT_EQ(two.reasons.size(), 2U);
  EXPECT_EQ(two.reasons[0].what, "expert down_proj, gate_proj, up_proj (6 modules)");
  EXPECT_EQ(two.reasons[0].why, "features 16 / 2 = 8, 0.5 groups of 16; there is only 1 of them");
  EXPECT_EQ(two.reasons[1].why, "1 key/value heads: each is held by 2 ranks");
  EXPECT_EQ(two.reasons[1].fit, SplitFit::even);
  const SplitPlan three = plan_of(tensor, 3);
  EXPECT_EQ(three.reasons.back().what, "vocabulary");
  EXPECT_EQ(three.reasons.back().why, "64 is padded to 192, 64 a rank");

  const auto expert = expert_splits(identified, sizes, counts);
  EXPECT_EQ(plan_of(expert, 2).fit, SplitFit::even);
  EXPECT_EQ(plan_of(expert, 3).fit, SplitFit::none);
  EXPECT_EQ(plan_of(expert, 3).reasons[0].what, "experts");
}

TEST(SplitPlan, ExpertsAloneMayBeDealtWhereTheModelIsNot) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  const Checkpoint checkpoint = small.open();
  SplitSizes sizes;
  sizes.heads = 2;
  const int three[] = {3};
  Identified identified = *identify(checkpoint);
  for (Module& module : identified.modules) {
    if (module.role == Role::down_proj) module.k *= 4;
    if (module.role == Role::gate_proj || module.role == Role::up_proj) module.n *= 4;
  }
  const SplitPlan plan = tensor_splits(identified, sizes, three)[0];
  EXPECT_EQ(plan.fit, SplitFit::none);
  EXPECT_EQ(plan.experts_fit, SplitFit::uneven);
  EXPECT_EQ(plan.reasons[0].what, "attention");  // what forbids it comes first
}

// Runs of 32 rows and of 48 columns meet every 96 features, of which there are 2.
TEST(SplitPlan, CutsGateUpAndDownOfAnMlpAtTheSamePlaces) {
  Scheme rows = plain_scheme(DType::f8_e4m3);
  rows.scale = ScaleSpec{DType::f32, {32, 128}};
  Scheme columns = plain_scheme(DType::f8_e4m3);
  columns.scale = ScaleSpec{DType::f32, {1, 48}};
  const int four[] = {4};
  for (const auto& [gate_up, down] :
       {std::pair{Role::gate_up_proj, Role::down_proj},
        std::pair{Role::shared_gate_up_proj, Role::shared_down_proj}}) {
    Identified identified;
    identified.modules = {matrix(gate_up, 2 * 192, 64, rows), matrix(down, 64, 192, columns)};
    EXPECT_EQ(tensor_splits(identified, SplitSizes{}, four)[0].fit, SplitFit::none)
        << role_name(gate_up);
  }
}

TEST(ExaminedRanks, AreAllTo64AndTheDivisorsOfTheExperts) {
  const std::vector<int> ranks = examined_ranks(160);
  EXPECT_EQ(ranks.size(), 66U);
  EXPECT_EQ(ranks_text(ranks), "1 to 64, 80, 160");
  EXPECT_EQ(ranks_text(std::vector<int>{1, 2, 4, 6, 7, 8, 10}), "1, 2, 4, 6 to 8, 10");
  EXPECT_EQ(legal_ranks_text(768, 128, Dealing::whole_units), "1 to 6");
  EXPECT_EQ(legal_ranks_text(1408, 16, Dealing::whole_units), "1 to 88");
  EXPECT_EQ(legal_ranks_text(1408, 16, Dealing::even), "1, 2, 4, 8, 11, 22, 44, 88");
  EXPECT_EQ(legal_ranks_text(768, 128, Dealing::even), "1 to 3, 6");
}

TEST(SplitPlan, TheVocabularyIsPaddedToRunsOf64) {
  SplitSizes sizes;
  sizes.vocab = 49159;
  const int two[] = {2};
  const auto plans = tensor_splits(Identified{}, sizes, two);
  ASSERT_EQ(plans[0].reasons.size(), 1U);
  EXPECT_EQ(plans[0].reasons[0].why, "49159 is padded to 49280, 24640 a rank");
  EXPECT_EQ(plans[0].fit, SplitFit::even);
  EXPECT_TRUE(expert_splits(Identified{}, sizes, two).empty());
}

}  // namespace
}  // namespace fewbit
