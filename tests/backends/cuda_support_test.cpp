// SPDX-License-Identifier: Apache-2.0
// What the backend cuda_moe says of layers: what runs them, and every need that is not met.
#include <gtest/gtest.h>

#include <string>

#include "backends/cuda_moe/linear.hpp"

namespace fewbit::cuda {
namespace {

TEST(CudaMoe, ExplainSaysWhatTheDescribedCardRuns) {
  const MoeProblem problem =
      moe_problem_of({.n = 4096, .k = 1408, .weight = nvfp4_scheme(), .where = "experts"});
  DeviceInfo card = *describe_device("sm_90");
  EXPECT_EQ(cuda_moe_backend.variant(problem, card, 1), "streaming, one launch");
  card.shared_memory_bytes = 32 << 10;
  EXPECT_EQ(cuda_moe_backend.variant(problem, card, 1),
            "grouped warpgroup products, items of up to 32 rows");
}

TEST(CudaLinear, EveryUnmetNeedIsNamed) {
  DeviceInfo card;
  card.kind = DeviceKind::cuda;
  card.compute_capability = 90;
  card.sm_count = 132;
  card.shared_memory_bytes = 232448;
  LinearProblem problem{.n = 4096, .k = 25600, .weight = {}, .where = "dense"};
  problem.weight.weight = DType::f8_e4m3;
  problem.weight.scale = ScaleSpec{};
  problem.weight.scale->dtype = DType::f32;
  problem.weight.scale->granularity = {.rows = 128, .cols = 128};
  EXPECT_TRUE(linear_refusals(problem, card).empty());
  problem.n = 4080;
  problem.activation_dtype = DType::f32;
  problem.output_dtype = DType::f8_e4m3;
  card.compute_capability = 80;
  std::string text;
  for (const Refusal& r : linear_refusals(problem, card)) text += r.needs + "/" + r.has + "; ";
  EXPECT_EQ(
      text,
      "compute capability 9.0/compute capability 8.0; activations in bf16 or f16/f32; results in "
      "bf16, f16 or f32/f8_e4m3; n % 32 = 0/4080; ");
  card.compute_capability = 90;
  problem.n = 4096;
  problem.activation_dtype = DType::f16;
  problem.output_dtype = DType::f16;
  EXPECT_TRUE(linear_refusals(problem, card).empty());
  problem.weight = nvfp4_scheme();
  ASSERT_EQ(linear_refusals(problem, card).size(), 1U);
  EXPECT_EQ(linear_refusals(problem, card)[0].needs, "activations in bf16");
  problem.n = 4080;
  problem.activation_dtype = DType::f32;
  problem.output_dtype = DType::f8_e4m3;
  card.compute_capability = 80;
  problem.weight.weight = DType::f8_e5m2;
  EXPECT_EQ(linear_refusals(problem, card).size(), 4U);
}

}  // namespace
}  // namespace fewbit::cuda
