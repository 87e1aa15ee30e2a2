// SPDX-License-Identifier: Apache-2.0
// Experts that are stored [experts, in, out].
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "quantize/quantize_case.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Rows in more than one piece, [experts, in, out] as Llama 4 and gpt-oss store them.
constexpr std::int64_t turned_n = 600;
constexpr std::int64_t turned_k = 1024;

SmallCheckpoint inputs_first(const std::string& model_type, const std::vector<float>& weights) {
  SmallCheckpoint small;
  small.add_bf16("model.layers.0.mlp.experts.gate_up_proj", {2, turned_k, turned_n}, weights);
  small.file("config.json", R"({"hidden_size": 1024, "model_type": ")" + model_type + "\"}");
  return small;
}

std::vector<float> turned_weights() {
  std::vector<float> weights(static_cast<std::size_t>(2 * turned_k * turned_n));
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = 0.001F * static_cast<float>(i % 251) - 0.1F;
  }
  return weights;
}

TEST_F(QuantizeCheckpoint, ExpertsStoredInputsFirstHaveTheCodesOfTheirRows) {
  const std::vector<float> weights = turned_weights();
  SmallCheckpoint small = inputs_first("llama4_text", weights);
  const auto report = quantize(small);
  ASSERT_TRUE(report) << report.error().message();
  const Checkpoint checkpoint = result();
  const Identified identified = *identify(checkpoint);
  const Module& module = *identified.find("model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_TRUE(module.transposed);
  EXPECT_EQ(module.scheme, nvfp4_scheme());
  for (std::int64_t e = 0; e < 2; ++e) {
    std::vector<float> rows(static_cast<std::size_t>(turned_n * turned_k));
    for (std::int64_t i = 0; i < turned_n * turned_k; ++i) {
      const std::int64_t from = (e * turned_k + i % turned_k) * turned_n + i / turned_k;
      rows[static_cast<std::size_t>(i)] =
          bf16_to_f32(f32_to_bf16(weights[static_cast<std::size_t>(from)]));
    }
    const Nvfp4Matrix expected = *quantize_nvfp4(turned_n, turned_k, rows);
    const QuantizedTensor found = *canonicalize(checkpoint, module, e);
    EXPECT_EQ(found.global_scale, expected.global_scale);
    EXPECT_TRUE(std::ranges::equal(found.codes.view.bytes, expected.codes)) << e;
    EXPECT_TRUE(std::ranges::equal(found.scales.view.bytes, expected.scales)) << e;
  }
}

TEST_F(QuantizeCheckpoint, ExpertsStoredInputsFirstAreRefusedWhereNoFamilyTells) {
  SmallCheckpoint small = inputs_first("another_moe", {0.5F});
  const auto report = quantize(small);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, ErrorCode::unsupported);
  EXPECT_THAT(report.error().message(),
              AllOf(HasSubstr("experts.gate_up_proj"), HasSubstr("weights are [2, 1024, 600]"),
                    HasSubstr("model_type \"another_moe\""),
                    HasSubstr("expected [experts, out, in] = [2, 600, 1024]")));
  EXPECT_FALSE(fs::exists(output_));
}

TEST_F(QuantizeCheckpoint, AnInfiniteWeightStoredInputsFirstIsNamedByItsStoredPlace) {
  std::vector<float> weights = turned_weights();
  weights[static_cast<std::size_t>((turned_k + 3) * turned_n + 5)] =
      std::numeric_limits<float>::infinity();
  SmallCheckpoint small = inputs_first("llama4_text", weights);
  const auto report = quantize(small);
  ASSERT_FALSE(report);
  EXPECT_THAT(report.error().message(), HasSubstr("experts.gate_up_proj: weight [1027, 5] is inf"));
}

}  // namespace
}  // namespace fewbit
