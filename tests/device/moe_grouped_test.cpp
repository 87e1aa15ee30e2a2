// SPDX-License-Identifier: Apache-2.0
// The grouped MoE kernels against exact arithmetic. Needs a GPU; skipped where there is none.
#include "device/moe_run.hpp"

namespace fewbit::cuda {
namespace {

class GroupedTest : public MoeF4Test {
 protected:
  GroupedTest() : MoeF4Test({.least = 90, .most = 90}) {}  // that has warpgroup products
  void check(CellFormat format, const StreamShape& shape, std::int64_t every = 1,
             int item_rows = 0) {
    const RandomLayer layer =
        random_layer(format, shape, 1 + static_cast<std::uint64_t>(shape.tokens));
    SCOPED_TRACE(testing::Message()
                 << "format " << name_of(format) << " tokens " << shape.tokens << " hidden "
                 << shape.hidden_size << " inner " << shape.intermediate_size);
    const Result<Outcome> outcome = run_grouped(layer, card_, 3, item_rows);
    ASSERT_OK(outcome);
    expect_exact(layer, *outcome, every);
  }
};

// Small enough for compute-sanitizer.
TEST_F(GroupedTest, FewTokens) {
  for (const CellFormat& format : all_formats()) {
    check(format, {5, 2, 4, 64, 64});
    check(format, {70, 2, 2, 128, 192}, 1, 32);
    check(format, {70, 2, 2, 128, 192}, 1, 64);
    if (!format.scaled_sums()) check(format, {70, 2, 2, 128, 192}, 1, 128);
  }
}

TEST_F(GroupedTest, SmallAndOddShapes) {
  for (const CellFormat& format : all_formats()) {
    for (const std::int64_t tokens : {1, 7, 8, 9, 16, 17, 33, 49, 65, 97, 128, 129, 300}) {
      for (const StreamShape& s :
           {StreamShape{tokens, 1, 1, 64, 64}, StreamShape{tokens, 3, 5, 192, 320},
            StreamShape{tokens, 2, 2, 640, 448}}) {
        for (const int item_rows : {32, 64, 128}) {
          if (item_rows == 128 && format.scaled_sums()) continue;
          check(format, s, (tokens + 15) / 16, item_rows);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(GroupedTest, ActivationsBiasesMapsAndRouterWeightsOnEitherSide) {
  for (const CellFormat& format : all_formats()) {
    for (const RuleCase& c : rule_cases()) {
      if (c.rule.activation != F4Activation::swiglu) continue;
      SCOPED_TRACE(testing::Message() << c.name << ", format " << name_of(format));
      const RandomLayer layer = layer_of(format, {90, 3, 8, 192, 128}, c);
      const Result<Outcome> outcome = run_grouped(layer, card_, 3);
      ASSERT_OK(outcome);
      expect_exact(layer, *outcome, 1);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GroupedTest, RoutesThatAreSkewedRepeatedOrOutside) {
  for (const CellFormat& format : all_formats()) {
    RandomLayer layer = random_layer(format, {400, 4, 16, 256, 128}, 5);
    for (std::size_t i = 0; i < layer.ids.size(); ++i) {
      if (i % 4 == 0) layer.ids[i] = 3;
      if (i % 4 == 1 && i % 3 == 0) layer.ids[i] = 3;
      if (i % 4 == 2) layer.ids[i] = i % 8 == 2 ? -1 : 16 + static_cast<int>(i);
    }
    for (std::size_t j = 0; j < 4; ++j) layer.ids[4 * 11 + j] = -1;
    const Result<Outcome> outcome = run_grouped(layer, card_, 1000);
    ASSERT_OK(outcome);
    expect_exact(layer, *outcome, 7);
  }
}

TEST_F(GroupedTest, LayersOfPublishedModels) {
  for (const CellFormat format :
       {nvfp4_cells, mxfp4_cells, all_formats()[2], all_formats()[3], all_formats()[6]}) {
    check(format, {300, 8, 128, 2048, 768}, 100);
    check(format, {4096, 8, 128, 2048, 768}, 2000);
    check(format, {150, 4, 4, 2880, 2880}, 50);
    check(format, {200, 8, 16, 4096, 1408}, 60);
    check(format, {64, 2, 4, 7168, 2048}, 30);
  }
}

}  // namespace
}  // namespace fewbit::cuda
