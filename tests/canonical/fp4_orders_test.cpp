// SPDX-License-Identifier: Apache-2.0
// 4-bit floats in the orders of dimensions and rows that producers store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "fewbit/quantized.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

constexpr std::array<float, 8> e2m1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
const std::string experts = "model.layers.0.mlp.experts.";

Result<MoeWeights> gather(const Checkpoint& checkpoint) {
  Result<Identified> identified = identify(checkpoint);
  EXPECT_TRUE(identified) << identified.error().message();
  return gather_moe(checkpoint, *identified, 0);
}

std::vector<float> values(const QuantizedTensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.n * tensor.k));
  EXPECT_TRUE(dequantize_rows(tensor, 0, out));
  return out;
}

// gpt-oss with 2 experts, 3 gate and 3 up rows of 32 columns. Row r of expert e has the code
// e + r in all columns and the scale 2^r.
SmallCheckpoint gpt_oss() {
  SmallCheckpoint small;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  std::vector<float> bias;
  for (std::uint8_t e = 0; e < 2; ++e) {
    for (std::uint8_t r = 0; r < 6; ++r) {
      codes.insert(codes.end(), 16, static_cast<std::uint8_t>(0x11 * (e + r)));
      scales.push_back(static_cast<std::uint8_t>(127 + r));
      bias.push_back(static_cast<float>(10 * e + r));
    }
  }
  small.add(experts + "gate_up_proj_blocks", DType::u8, {2, 6, 1, 16}, codes);
  small.add(experts + "gate_up_proj_scales", DType::u8, {2, 6, 1}, scales);
  small.add_f32(experts + "gate_up_proj_bias", {2, 6}, bias);
  small.add(experts + "down_proj_blocks", DType::u8, {2, 32, 1, 16}, {0x32});
  small.add(experts + "down_proj_scales", DType::u8, {2, 32, 1}, {128});
  return small;
}

TEST(Fp4Orders, GateAndUpRowsOfGptOssAreTakenApart) {
  SmallCheckpoint small = gpt_oss();
  // The three columns of `down` can't be: the intermediate size must fill blocks.
  small.remove(experts + "down_proj_blocks").remove(experts + "down_proj_scales");
  const Checkpoint checkpoint = small.open();
  const auto identified = identify(checkpoint);
  ASSERT_TRUE(identified);
  const Module& module = *identified->find(experts + "gate_up_proj");
  EXPECT_TRUE(module.alternating);
  EXPECT_EQ(module.scheme.packing, Packing::blocks);
  const auto both = canonicalize(checkpoint, module, 1);
  ASSERT_TRUE(both) << both.error().message();
  const std::vector<float> rows = values(*both);
  for (std::size_t r = 0; r < 6; ++r) {
    EXPECT_EQ(rows[r * 32], e2m1[r + 1] * static_cast<float>(1 << r)) << r;
  }
}

TEST(Fp4Orders, GatherGivesGateAndUpWithTheirBiases) {
  SmallCheckpoint small;
  std::vector<std::uint8_t> codes;
  std::vector<float> bias;
  for (std::uint8_t r = 0; r < 64; ++r) {
    codes.insert(codes.end(), 16, static_cast<std::uint8_t>(0x11 * (r % 8)));
    bias.push_back(static_cast<float>(r));
  }
  small.add(experts + "gate_up_proj_blocks", DType::u8, {1, 64, 1, 16}, codes);
  small.add(experts + "gate_up_proj_scales", DType::u8, {1, 64, 1}, {126});
  small.add_f32(experts + "gate_up_proj_bias", {1, 64}, bias);
  small.add(experts + "down_proj_blocks", DType::u8, {1, 32, 1, 16}, {0x32});
  small.add(experts + "down_proj_scales", DType::u8, {1, 32, 1}, {128});
  small.add_f32(experts + "down_proj_bias", {1, 32}, {7});
  const Checkpoint checkpoint = small.open();
  const auto weights = gather(checkpoint);
  ASSERT_TRUE(weights) << weights.error().message();
  const ExpertWeights& expert = weights->experts[0];
  const std::vector<float> gate = values(*expert.gate);
  const std::vector<float> up = values(expert.up);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(gate[i * 32], e2m1[2 * i % 8] / 2) << i;
    EXPECT_EQ(up[i * 32], e2m1[(2 * i + 1) % 8] / 2) << i;
    EXPECT_EQ(expert.gate_bias[i], static_cast<float>(2 * i));
    EXPECT_EQ(expert.up_bias[i], static_cast<float>(2 * i + 1));
  }
  EXPECT_EQ(expert.down_bias, std::vector<float>(32, 7.0F));
  EXPECT_EQ(values(expert.down)[0], 2.0F);
  EXPECT_EQ(values(expert.down)[1], 3.0F);
}

// [E, in/2, out]: byte (i, o) holds inputs 2i and 2i + 1 of output o.
TEST(Fp4Orders, TransposedExpertsAreTurned) {
  SmallCheckpoint small;
  std::vector<std::uint8_t> codes;
  for (int i = 0; i < 8; ++i) {
    for (int o = 0; o < 48; ++o) {
      codes.push_back(static_cast<std::uint8_t>((i + o) % 8 | ((i + 2 * o) % 8) << 4));
    }
  }
  const std::string module = experts + "gate_up_proj";
  small.add(module, DType::u8, {1, 8, 48}, codes);
  small.add(module + "_weight_scale", DType::f8_e4m3, {1, 1, 48}, {0x38});
  small.add_f32(module + "_weight_scale_2", {}, {0.5F});
  const Checkpoint checkpoint = small.open();
  const auto identified = identify(checkpoint);
  ASSERT_TRUE(identified);
  const auto matrix = canonicalize(checkpoint, *identified->find(module), 0);
  ASSERT_TRUE(matrix) << matrix.error().message();
  ASSERT_EQ(matrix->n, 48);
  ASSERT_EQ(matrix->k, 16);
  const std::vector<float> got = values(*matrix);
  for (std::size_t o = 0; o < 48; ++o) {
    for (std::size_t i = 0; i < 8; ++i) {
      EXPECT_EQ(got[o * 16 + 2 * i], e2m1[(i + o) % 8] / 2);
      EXPECT_EQ(got[o * 16 + 2 * i + 1], e2m1[(i + 2 * o) % 8] / 2);
    }
  }
}

// The divisor of compressed-tensors against the factor of ModelOpt, for one row of 16 codes 1.5.
TEST(Fp4Orders, ADivisorIsInvertedAndItsBitsAreKept) {
  SmallCheckpoint small;
  small.add("a.weight_packed", DType::u8, {1, 8}, {0x33});
  small.add("a.weight_scale", DType::f8_e4m3, {1, 1}, {0x40});
  small.add_f32("a.weight_global_scale", {1}, {2048.0F});
  const Checkpoint checkpoint = small.open();
  const auto identified = identify(checkpoint);
  ASSERT_TRUE(identified);
  const auto matrix = canonicalize(checkpoint, *identified->find("a"));
  ASSERT_TRUE(matrix) << matrix.error().message();
  EXPECT_EQ(matrix->stored_global_scale, 2048.0F);
  EXPECT_EQ(values(*matrix), std::vector<float>(16, 0.00146484375F));
}

TEST(Fp4Orders, BadPartsAreRefusedWithNamesAndNumbers) {
  struct Row {
    const char* suffix;
    DType dtype;
    Shape shape;
    const char* says;
  };
  for (const Row& row :
       {Row{"scales", DType::u8, {2, 6, 2}, "u8 [2, 6, 1, 16] with scales u8 [2, 6, 2]"},
        Row{"scales", DType::f16, {2, 6, 1}, "scales f16 [2, 6, 1]"},
        Row{"scales", DType::u8, {3, 6, 1}, "scales u8 [3, 6, 1]"},
        Row{"blocks", DType::u8, {2, 6, 16}, "blocks u8 [2, 6, 16]"},
        Row{"blocks", DType::f16, {2, 6, 1, 16}, "blocks is f16"}}) {
    SmallCheckpoint small = gpt_oss();
    small.add(experts + "gate_up_proj_" + row.suffix, row.dtype, row.shape);
    const Checkpoint checkpoint = small.open();
    const auto identified = identify(checkpoint);
    ASSERT_TRUE(identified);
    const Module& module = *identified->find(experts + "gate_up_proj");
    EXPECT_THAT(module.unreadable, HasSubstr(row.says));
    EXPECT_FALSE(canonicalize(checkpoint, module, 0));
  }
  SmallCheckpoint zero;
  zero.add("a.weight_packed", DType::u8, {1, 8}, {0x33});
  zero.add("a.weight_scale", DType::f8_e4m3, {1, 1}, {0x40});
  zero.add_f32("a.weight_global_scale", {1}, {0.0F});
  const Checkpoint checkpoint = zero.open();
  const auto identified = identify(checkpoint);
  ASSERT_TRUE(identified);
  const auto matrix = canonicalize(checkpoint, *identified->find("a"));
  ASSERT_FALSE(matrix);
  EXPECT_THAT(matrix.error().message(), HasSubstr("a.weight_global_scale"));
  EXPECT_THAT(matrix.error().message(), HasSubstr("divisor is 0"));
}

}  // namespace
}  // namespace fewbit
