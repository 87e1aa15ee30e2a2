// SPDX-License-Identifier: Apache-2.0
// The backend cuda_moe, from weights to results: packed on the host or on the device, arguments on
// the host or on the device. Needs a GPU; skipped where there is none.
#include <gtest/gtest.h>

#include "device/backend_case.hpp"

namespace fewbit::cuda {
namespace {

TEST_F(CudaBackendTest, GivesTheExactLayerHoweverItWasPackedAndWhereverItsArgumentsAre) {
  std::vector<Case> all = cases;
  std::ranges::copy(f16_cases(), std::back_inserter(all));
  for (const Case& c : all) {
    SCOPED_TRACE(testing::Message()
                 << c.name << (c.x_type == ActivationType::f16 ? " in f16" : ""));
    RandomLayer layer = layer_of(c);
    const MoeWeights weights = weights_of(layer);
    const MoeProblem problem = problem_of(c, weights);
    layer.rule = rule_of(problem);
    const Result<MoeLayer> prepared = prepare(problem, weights);
    ASSERT_OK(prepared);
    const auto out = run(*prepared, layer);
    ASSERT_OK(out);
    expect_exact_rows(layer, *out);
    const Result<MoeLayer> opened = open(problem, weights);
    ASSERT_OK(opened);
    const auto from_host_packing = run(*opened, layer);
    ASSERT_OK(from_host_packing);
    EXPECT_EQ(*from_host_packing, *out);
    const auto on_card = run_on_card(*prepared, layer);
    ASSERT_OK(on_card);
    EXPECT_EQ(*on_card, *out);
  }
}

// Whichever way they are packed.
TEST_F(CudaBackendTest, RefusesCodesThatAreNan) {
  for (const CellKind kind : {CellKind::f8, CellKind::mxfp8}) {
    const auto found = std::find_if(cases.begin(), cases.end(),
                                    [&](const Case& c) { return c.format.kind == kind; });
    RandomLayer layer = layer_of(*found);
    layer.codes[2][layer.codes[2].size() - 3] = 0xFF;
    const MoeWeights weights = weights_of(layer);
    const MoeProblem problem = problem_of(*found, weights);
    for (const Result<MoeLayer>& made : {prepare(problem, weights), open(problem, weights)}) {
      ASSERT_FALSE(made);
      EXPECT_NE(made.error().message().find("NaN"), std::string::npos) << made.error().message();
    }
  }
}

// Its own plan only, and no amax.
TEST_F(CudaBackendTest, RefusesWhatItCantDo) {
  const RandomLayer layer = layer_of(cases.front());
  const MoeWeights weights = weights_of(layer);
  const MoeProblem problem = problem_of(cases.front(), weights);
  const Result<MoeLayer> prepared = prepare(problem, weights);
  ASSERT_OK(prepared);
  std::vector<std::uint16_t> out(layer.x.size());
  MoeArgs args = args_of(layer, out);
  std::vector<float> amax(2 * 4);
  args.amax = AmaxTable{.values = amax, .layers = 1, .experts = 4, .layer = 0};
  const Result<void> collected = prepared->run(args, *executor_);
  ASSERT_FALSE(collected);
  EXPECT_NE(collected.error().message().find("amax"), std::string::npos);
  MoePlan other = plan_moe(problem).value();
  other.buffers.front().scale_format = "f8_e8m0";
  EXPECT_FALSE(open_moe(problem, other, {}));
}

}  // namespace
}  // namespace fewbit::cuda
