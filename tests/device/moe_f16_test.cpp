// SPDX-License-Identifier: Apache-2.0
// The MoE kernels with activations in f16 against exact arithmetic. Needs a GPU; skipped where
// there is none.
#include "device/moe_run.hpp"

namespace fewbit::cuda {
namespace {

class MoeF16Test : public MoeF4Test {
 protected:
  MoeF16Test() : MoeF4Test({.least = 90, .most = 90}) {}

  // By the streaming kernel, and by the grouped ones where they have the sizes and the activation.
  void check(RandomLayer layer, std::int64_t every, int repeats = 2) {
    use_f16(layer, 3);
    SCOPED_TRACE(testing::Message() << "format " << name_of(layer.format) << " tokens "
                                    << layer.shape.tokens << " hidden " << layer.shape.hidden_size);
    const auto plan = plan_stream(layer.format, layer.shape, card_);
    ASSERT_OK(plan);
    const Result<Outcome> streamed = run(layer, *plan, repeats);
    ASSERT_OK(streamed);
    expect_exact(layer, *streamed, every);
    if (layer.rule.activation != F4Activation::swiglu) return;
    for (const int item_rows : {32, 64}) {
      if (!plan_grouped(layer.shape, card_, item_rows)) continue;
      const Result<Outcome> grouped = run_grouped(layer, card_, repeats, item_rows);
      ASSERT_OK(grouped);
      expect_exact(layer, *grouped, every);
    }
  }
};

std::vector<CellFormat> f16_formats() {
  std::vector<CellFormat> made;
  for (const CellFormat& format : all_formats()) {
    if (takes_f16(format.kind)) made.push_back(format);
  }
  return made;
}

// Small enough for compute-sanitizer.
TEST_F(MoeF16Test, FewTokens) {
  for (const CellFormat& format : f16_formats()) {
    check(random_layer(format, {5, 2, 4, 64, 64}, 1), 1);
    check(random_layer(format, {70, 2, 2, 128, 192}, 2), 1);
  }
}

TEST_F(MoeF16Test, SmallAndOddShapes) {
  for (const CellFormat& format : f16_formats()) {
    for (const std::int64_t tokens : {1, 8, 9, 17, 33, 65, 129, 300}) {
      check(random_layer(format, {tokens, 3, 5, 192, 320}, 1), (tokens + 15) / 16);
      check(random_layer(format, {tokens, 1, 1, 64, 64}, 1), (tokens + 15) / 16);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MoeF16Test, ActivationsBiasesMapsAndRouterWeightsOnEitherSide) {
  for (const CellFormat& format : f16_formats()) {
    for (const RuleCase& c : rule_cases()) {
      SCOPED_TRACE(c.name);
      check(layer_of(format, {40, 3, 8, 192, 128}, c), 3);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MoeF16Test, LayersOfPublishedModelsTheSameEveryTime) {
  for (const CellFormat& format : {all_formats()[2], all_formats()[6]}) {
    check(random_layer(format, {1, 8, 128, 2048, 768}, 1), 1, 100);
    check(random_layer(format, {64, 8, 16, 4096, 1408}, 1), 60, 100);
  }
}

}  // namespace
}  // namespace fewbit::cuda
