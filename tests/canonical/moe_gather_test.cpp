// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fewbit/quantized.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

Result<MoeWeights> gather(const Checkpoint& checkpoint, int layer = 0) {
  Result<Identified> identified = identify(checkpoint);
  EXPECT_TRUE(identified) << identified.error().message();
  return gather_moe(checkpoint, *identified, layer);
}

float first_value(const QuantizedTensor& tensor) {
  std::vector<float> row(static_cast<std::size_t>(tensor.k));
  EXPECT_TRUE(dequantize_rows(tensor, 0, row));
  return row.front();
}

// Sorted as text, expert 10 would stand at index 2.
TEST(GatherMoe, OrdersExpertsByNumber) {
  SmallCheckpoint small;
  for (int e = 0; e < 12; ++e) {
    const std::string expert = "model.layers.0.block_sparse_moe.experts." + std::to_string(e) + ".";
    const auto value = static_cast<float>(e);
    small.add_bf16(expert + "w1.weight", {16, 32}, {value});
    small.add_bf16(expert + "w3.weight", {16, 32}, {value + 0.25F});
    small.add_bf16(expert + "w2.weight", {32, 16}, {value + 0.5F});
  }
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(weights->hidden_size, 32);
  EXPECT_EQ(weights->intermediate_size, 16);
  ASSERT_EQ(weights->experts.size(), 12U);
  for (std::size_t e = 0; e < 12; ++e) {
    const auto value = static_cast<float>(e);
    EXPECT_EQ(first_value(*weights->experts[e].gate), value);
    EXPECT_EQ(first_value(weights->experts[e].up), value + 0.25F);
    EXPECT_EQ(first_value(weights->experts[e].down), value + 0.5F);
  }
}

TEST(GatherMoe, GateAndUpKeepTheirOwnGlobalScales) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_f32("model.layers.0.mlp.experts.1.gate_proj.weight_scale_2", {}, {0.5F});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(weights->experts[1].gate->global_scale, 0.5F);
  EXPECT_EQ(weights->experts[1].up.global_scale, 0.25F);
}

TEST(GatherMoe, SplitsFusedTensorsIntoGateRowsThenUpRows) {
  SmallCheckpoint small;
  const std::string experts = "model.layers.0.mlp.experts.";
  // Expert e, row r: byte 16 e + r; two codes a byte.
  std::vector<std::uint8_t> codes;
  for (std::uint8_t e = 0; e < 2; ++e) {
    for (std::uint8_t r = 0; r < 8; ++r) {
      codes.insert(codes.end(), 8, static_cast<std::uint8_t>(0x11 * (e * 3 + r % 5)));
    }
  }
  small.add(experts + "gate_up_proj", DType::u8, {2, 8, 8}, codes);
  small.add(experts + "gate_up_proj_weight_scale", DType::f8_e4m3, {2, 8, 1}, {0x38});
  small.add_f32(experts + "gate_up_proj_weight_scale_2", {}, {1.0F});
  small.add(experts + "down_proj", DType::u8, {2, 16, 2}, {0x22});
  small.add(experts + "down_proj_weight_scale", DType::f8_e4m3, {2, 16, 1}, {0x38});
  small.add_f32(experts + "down_proj_weight_scale_2", {2}, {1.0F, 2.0F});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_TRUE(weights) << weights.error().message();
  ASSERT_EQ(weights->experts.size(), 2U);
  EXPECT_EQ(weights->hidden_size, 16);
  EXPECT_EQ(weights->intermediate_size, 4);
  const std::byte* const base = checkpoint.tensor(experts + "gate_up_proj")->view.bytes.data();
  EXPECT_EQ(weights->experts[1].gate->codes.view.bytes.data(), base + 64);
  EXPECT_EQ(weights->experts[1].up.codes.view.bytes.data(), base + 64 + 32);
  EXPECT_EQ(weights->experts[1].up.codes.view.bytes.size(), 32U);
  EXPECT_EQ(weights->experts[1].up.scales.view.bytes.size(), 4U);
  EXPECT_EQ(first_value(*weights->experts[1].gate), 1.5F);  // code 3
  EXPECT_EQ(first_value(weights->experts[1].up), 6.0F);     // code 7
  EXPECT_EQ(first_value(weights->experts[1].down), 2.0F);   // code 2 times 2
}

TEST(GatherMoe, BiasesFollowTheirRows) {
  SmallCheckpoint small;
  const std::string experts = "model.layers.0.mlp.experts.";
  small.file("config.json", R"({"hidden_size": 16})");
  small.add_bf16(experts + "gate_up_proj", {2, 8, 16});
  small.add_f32(experts + "gate_up_proj_bias", {2, 8},
                {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  small.add_bf16(experts + "down_proj", {2, 16, 4});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_EQ(weights->experts[1].gate_bias, (std::vector<float>{8, 9, 10, 11}));
  EXPECT_EQ(weights->experts[1].up_bias, (std::vector<float>{12, 13, 14, 15}));
  EXPECT_TRUE(weights->experts[1].down_bias.empty());
  EXPECT_TRUE(weights->experts[1].biased());
}

TEST(GatherMoe, BiasesOfSomeExpertsAreZeroOrRefusedByName) {
  for (const float bias : {0.0F, 2.0F}) {
    SmallCheckpoint small;
    small.file("config.json", R"({"hidden_size": 16})");
    for (const std::string expert : {"0", "1"}) {
      const std::string name = "model.layers.0.mlp.experts." + expert;
      small.add_bf16(name + ".gate_proj.weight", {4, 16});
      small.add_bf16(name + ".up_proj.weight", {4, 16});
      small.add_bf16(name + ".down_proj.weight", {16, 4});
    }
    small.add_f32("model.layers.0.mlp.experts.1.up_proj.bias", {4}, {0, 0, bias, 0});
    const Checkpoint checkpoint = small.open();
    const auto weights = gather(checkpoint);
    if (bias == 0.0F) {
      ASSERT_TRUE(weights) << weights.error().message();
      EXPECT_FALSE(weights->experts[1].biased());
      continue;
    }
    ASSERT_FALSE(weights);
    EXPECT_EQ(weights.error().code, ErrorCode::inconsistent);
    EXPECT_EQ(weights.error().message(),
              "model.layers.0.mlp.experts.1.up_proj: a bias that is not zero, expected none as "
              "model.layers.0.mlp.experts.0.down_proj has none");
  }
}

TEST(GatherMoe, ABiasOfAnotherShapeIsRefusedWithBothShapes) {
  SmallCheckpoint small;
  small.file("config.json", R"({"hidden_size": 16})");
  small.add_bf16("model.layers.0.mlp.experts.gate_up_proj", {2, 8, 16});
  small.add_bf16("model.layers.0.mlp.experts.down_proj", {2, 16, 4});
  small.add_bf16("model.layers.0.mlp.experts.down_proj_bias", {2, 4});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::corrupt);
  EXPECT_THAT(weights.error().message(), HasSubstr("down_proj_bias"));
  EXPECT_THAT(weights.error().message(), HasSubstr("[2, 4], expected [2, 16]"));
}

TEST(GatherMoe, ExpertsWithoutAGateAreNotGated) {
  SmallCheckpoint small;
  for (int e = 0; e < 2; ++e) {
    const std::string expert = "backbone.layers.4.mixer.experts." + std::to_string(e) + ".";
    small.add_bf16(expert + "up_proj.weight", {16, 32});
    small.add_bf16(expert + "down_proj.weight", {32, 16});
  }
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint, 4);
  ASSERT_TRUE(weights) << weights.error().message();
  EXPECT_FALSE(weights->experts[0].gate.has_value());
}

TEST(GatherMoe, MissingExpertsAreListed) {
  SmallCheckpoint one_matrix = SmallCheckpoint::bf16();
  one_matrix.remove("model.layers.0.mlp.experts.0.gate_proj.weight");
  const Checkpoint first = one_matrix.open();
  auto weights = gather(first);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::inconsistent);
  EXPECT_EQ(weights.error().message(), "layer 0: 1 of 2 experts are missing or incomplete: 0");

  // The last expert: only the router's rows tell that there is one.
  SmallCheckpoint last = SmallCheckpoint::bf16();
  for (const char* role : {"gate_proj", "up_proj", "down_proj"}) {
    last.remove(std::string("model.layers.0.mlp.experts.1.") + role + ".weight");
  }
  const Checkpoint second = last.open();
  weights = gather(second);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().message(), "layer 0: 1 of 2 experts are missing or incomplete: 1");
}

TEST(GatherMoe, ExpertsOfOtherShapesAreRefused) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  small.add_bf16("model.layers.0.mlp.experts.1.down_proj.weight", {32, 48});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::inconsistent);
  EXPECT_THAT(weights.error().what,
              HasSubstr("down_proj of expert 1 is [32, 48], expected [32, 16]"));
}

TEST(GatherMoe, ALayerWithoutExpertsIsNamed) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint, 7);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::not_found);
  EXPECT_EQ(weights.error().message(), "layer 7: no routed experts");
}

TEST(GatherMoe, AnExpertStoredTwiceIsRefused) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  small.add_bf16("model.layers.0.mlp.experts.1.w2.weight", {32, 16});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_FALSE(weights);
  EXPECT_THAT(weights.error().message(), HasSubstr("down_proj of expert 1 is stored twice"));
}

// A number that would ask for gigabytes of bookkeeping.
TEST(GatherMoe, FusedExpertsBesideSingleOnesAreRefused) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_bf16("model.layers.0.mlp.experts.down_proj", {2, 32, 16}, {1.0F});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_FALSE(weights);
  EXPECT_THAT(weights.error().message(), HasSubstr("mlp.experts.down_proj"));
  EXPECT_THAT(weights.error().what, HasSubstr("stored twice"));
}

TEST(GatherMoe, GateAndUpInOneMatrixAndByThemselvesAreRefused) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_bf16("model.layers.0.mlp.experts.0.gate_up_proj.weight", {32, 32}, {1.0F});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_FALSE(weights);
  EXPECT_THAT(weights.error().message(), HasSubstr("experts.0.gate_proj"));
  EXPECT_THAT(weights.error().what, HasSubstr("experts.0.gate_up_proj"));
}

// The name says the one order, the family's code the other.
TEST(GatherMoe, TheOrderOfUpGateProjIsNotGuessed) {
  SmallCheckpoint small;
  const std::string expert = "model.layers.0.mlp.experts.0.";
  small.add_bf16(expert + "up_gate_proj.weight", {32, 32}, {1.0F});
  small.add_bf16(expert + "down_proj.weight", {32, 16}, {1.0F});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_FALSE(weights);
  EXPECT_THAT(weights.error().message(), HasSubstr("up_gate_proj"));
}

TEST(GatherMoe, AHugeExpertNumberIsRefused) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  small.add_bf16("model.layers.0.mlp.experts.2000000000.up_proj.weight", {16, 32});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, ErrorCode::limit);
  EXPECT_THAT(weights.error().what, HasSubstr("2000000000, expected less than 65536"));
}

}  // namespace
}  // namespace fewbit
