// SPDX-License-Identifier: Apache-2.0
// Values of scales: counted as their type says, and judged.
#include "scheme/scale_values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "fewbit/scheme.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::Not;

std::vector<std::byte> all_bytes() {
  std::vector<std::byte> bytes(256);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

TEST(ScaleValues, CountsEveryCodeOfAByteType) {
  const auto e4m3 = count_scale_values(DType::f8_e4m3, all_bytes());
  ASSERT_TRUE(e4m3);
  EXPECT_EQ(e4m3->values, 256U);
  EXPECT_EQ(e4m3->not_finite, 2U);
  EXPECT_EQ(e4m3->zero, 2U);
  EXPECT_EQ(e4m3->negative, 126U);
  EXPECT_EQ(e4m3->largest, 448.0F);
  EXPECT_EQ(e4m3->smallest, -448.0F);
  const auto e8m0 = count_scale_values(DType::f8_e8m0, all_bytes());
  EXPECT_EQ(e8m0->not_finite, 1U);
  EXPECT_EQ(e8m0->zero, 0U);  // byte 0 is 2^-127
  EXPECT_EQ(e8m0->smallest, std::ldexp(1.0F, -127));
}

TEST(ScaleValues, CountsNumbersOfAnyLength) {
  std::vector<float> values(40000, 0.5F);
  values[7] = 0.0F;
  values[39999] = -2.0F;
  values[20000] = std::numeric_limits<float>::infinity();
  values[30000] = 120.0F;
  const auto counts = count_scale_values(DType::f32, std::as_bytes(std::span(values)));
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->values, 40000U);
  EXPECT_EQ(counts->not_finite, 1U);
  EXPECT_EQ(counts->negative, 1U);
  EXPECT_EQ(counts->zero, 1U);
  EXPECT_EQ(counts->whole, 1U);
  EXPECT_EQ(counts->largest, 120.0F);
  EXPECT_EQ(counts->smallest, -2.0F);
  EXPECT_FALSE(count_scale_values(DType::i32, std::as_bytes(std::span(values))));
}

TEST(ScaleValues, NothingButNanHasNoNumber) {
  const std::vector<float> values(3, std::nanf(""));
  const auto counts = count_scale_values(DType::f32, std::as_bytes(std::span(values)));
  EXPECT_FALSE(counts->has_number());
  EXPECT_EQ(counts->largest, 0.0F);
}

std::vector<Finding> findings_of(SmallCheckpoint& small) {
  const Checkpoint checkpoint = small.open();
  Result<Identified> identified = identify(checkpoint);
  EXPECT_TRUE(identified) << identified.error().message();
  return validate(checkpoint, *identified);
}

auto finding(const char* rule, const std::string& where, const char* found) {
  return AllOf(Field(&Finding::rule, rule), Field(&Finding::where, HasSubstr(where)),
               Field(&Finding::found, HasSubstr(found)));
}

const std::string expert0 = "model.layers.0.mlp.experts.0.";

TEST(ValidateScaleValues, ADivisorTakenForAFactorIsImplausible) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_f32(expert0 + "down_proj.weight_scale_2", {}, {2048.0F});
  EXPECT_THAT(findings_of(small),
              Contains(AllOf(finding("global-scale-direction", expert0 + "down_proj.weight_scale_2",
                                     "weights up to 12288: scales up to 1, global factor 2048"),
                             Field(&Finding::expected, HasSubstr("0.000488281")))));
  small = SmallCheckpoint::modelopt();
  small.add_f32(expert0 + "down_proj.weight_scale_2", {}, {1.0F / 2048});
  EXPECT_THAT(findings_of(small), Not(Contains(Field(&Finding::rule, "global-scale-direction"))));
}

TEST(ValidateScaleValues, ErasedWeightsAreCounted) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add(expert0 + "up_proj.weight_scale", DType::f8_e4m3, {16, 2}, {0x38, 0x00});
  EXPECT_THAT(findings_of(small), Contains(finding("scale-zero", expert0 + "up_proj.weight_scale",
                                                   "16 of 32 scales are zero, 256 weights")));
}

TEST(ValidateScaleValues, AnExpertThatNothingReachedIsNamed) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  for (const char* name : {"gate_proj", "up_proj"}) {
    small.add_f32(expert0 + name + ".weight_scale_2", {}, {1e-23F});
  }
  const std::vector<Finding> findings = findings_of(small);
  EXPECT_THAT(findings, Contains(finding("expert-dead", "layers.0 up_proj", "experts 0 (1 of 2)")));
  EXPECT_THAT(findings, Contains(finding("expert-dead", "layers.0 gate_proj", "up to 1e-23")));
  const std::string none = "weights up to 6e-23: scales up to 1, global factor 1e-23";
  EXPECT_THAT(findings, Contains(finding("global-scale-direction", "gate_proj", none.c_str())));
  EXPECT_THAT(findings, Contains(finding("global-scale-direction", "up_proj", none.c_str())));
  EXPECT_EQ(findings.size(), 4U);
}

// An expert is compared with those whose scales are known to be the size of weights.
TEST(ValidateScaleValues, AnExpertIsNotDeadBesideOneThatCanNotBeRead) {
  const std::string up = expert0 + "up_proj";
  const auto dead = Contains(Field(&Finding::rule, "expert-dead"));
  const auto small_experts = [] {
    SmallCheckpoint small = SmallCheckpoint::modelopt();
    for (const char* expert : {"0", "1"}) {
      small.add_f32(std::string("model.layers.0.mlp.experts.") + expert + ".up_proj.weight_scale_2",
                    {}, {1e-7F});
    }
    return small;
  };
  SmallCheckpoint none = small_experts();
  EXPECT_THAT(findings_of(none), Not(dead));
  SmallCheckpoint unreadable = small_experts();  // with factors of 1
  unreadable.remove(up + ".weight_scale_2");
  EXPECT_THAT(findings_of(unreadable), Not(dead));
  EXPECT_THAT(findings_of(unreadable), Contains(Field(&Finding::rule, "global-scale-missing")));
  for (const float wrong : {std::nanf(""), -1.0F, 0.0F, std::numeric_limits<float>::infinity()}) {
    SmallCheckpoint small = small_experts();
    small.add_f32(up + ".weight_scale_2", {}, {wrong});
    EXPECT_THAT(findings_of(small), Not(dead)) << wrong;
  }
  SmallCheckpoint nan = small_experts();
  nan.add(up + ".weight_scale", DType::f8_e4m3, {16, 2}, {0x7F});
  EXPECT_THAT(findings_of(nan), Not(dead));
  EXPECT_THAT(findings_of(nan), Contains(Field(&Finding::rule, "scale-nan")));
  SmallCheckpoint zero = small_experts();
  zero.add(up + ".weight_scale", DType::f8_e4m3, {16, 2}, {0x00});
  EXPECT_THAT(findings_of(zero), dead);
}

TEST(ValidateScaleValues, ExpertsOfOneTensorWithoutAFactorAreNotCompared) {
  const std::string fused = "model.layers.0.mlp.experts.gate_up_proj";
  for (const float wrong : {std::nanf(""), -1.0F, 0.0F}) {
    SmallCheckpoint small = SmallCheckpoint::modelopt();
    small.add(fused + ".weight", DType::u8, {3, 32, 16}, {0x21});
    small.add(fused + ".weight_scale", DType::f8_e4m3, {3, 32, 2}, {0x38});
    small.add_f32(fused + ".weight_scale_2", {3}, {1e-8F, wrong, 1e-23F});
    EXPECT_THAT(findings_of(small), Contains(finding("expert-dead", "layers.0 gate_up_proj",
                                                     "experts 2 (1 of 2) have scales up to 1e-23")))
        << wrong;
  }
}

TEST(ValidateScaleValues, E5M3HasOneNaNAndNoSign) {
  const std::vector<std::byte> codes = {std::byte{255}, std::byte{254}, std::byte{0}};
  const auto counts = count_scale_values(DType::f8_e5m3, codes);
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->not_finite, 1U);
  EXPECT_EQ(counts->zero, 1U);
  EXPECT_EQ(counts->largest, 114688.0F);
}

TEST(ValidateScaleValues, ExpertsOfOneTensorAreLookedAtOneByOne) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  const std::string fused = "model.layers.0.mlp.experts.gate_up_proj";
  small.add(fused + ".weight", DType::u8, {3, 32, 16}, {0x21});
  small.add(fused + ".weight_scale", DType::f8_e4m3, {3, 32, 2}, {0x38});
  small.add_f32(fused + ".weight_scale_2", {3}, {0.25F, 1e-23F, 0.5F});
  EXPECT_THAT(findings_of(small), Contains(finding("expert-dead", "layers.0 gate_up_proj",
                                                   "experts 1 (1 of 3) have scales up to 1e-23")));
}

TEST(ValidateScaleValues, OfTwoScalesOneIsNotApplied) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add(expert0 + "up_proj.scale", DType::f8_e4m3, {16, 2}, {0x38});
  const std::vector<Finding> findings = findings_of(small);
  const Checkpoint checkpoint = small.open();
  const Identified identified = *identify(checkpoint);
  const bool refused = !identified.find(expert0 + "up_proj")->unreadable.empty();
  EXPECT_TRUE(refused || std::any_of(findings.begin(), findings.end(),
                                     [](const Finding& f) { return f.rule == "scale-twice"; }));
}

TEST(ValidateSchemes, PartsThatAreFusedElsewhereAreCompared) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_nvfp4("model.layers.0.self_attn.q_proj", 32, 32);
  small.remove("model.layers.0.self_attn.q_proj.weight");
  small.add("model.layers.0.self_attn.q_proj.weight", DType::u8, {32, 16}, {0x21});
  const std::vector<Finding> findings = findings_of(small);
  EXPECT_THAT(findings, Contains(finding("fused-schemes-differ", "model.layers.0.self_attn",
                                         "q_proj ModelOpt NVFP4")));
  EXPECT_THAT(findings, Contains(Field(&Finding::found, HasSubstr("k_proj bf16"))));
}

TEST(ValidateSchemes, ExpertsOfDifferentSchemesAreStated) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  for (const auto& [name, n, k] :
       {std::tuple{"gate_proj", 16, 32}, {"up_proj", 16, 32}, {"down_proj", 32, 16}}) {
    for (const char* suffix : {".weight_scale", ".weight_scale_2"}) {
      small.remove(expert0 + name + suffix);
    }
    small.add_bf16(expert0 + name + ".weight", {n, k});
  }
  const std::vector<Finding> findings = findings_of(small);
  EXPECT_THAT(findings,
              Contains(finding("experts-mixed", "layers.0 up_proj", "bf16 in experts 0")));
  EXPECT_THAT(findings, Not(Contains(Field(&Finding::rule, "fused-schemes-differ"))));
}

TEST(ValidateRoles, SmallMatricesThatSteerAreBetterKeptExact) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_bf16("model.layers.0.mlp.gate.e_score_correction_bias", {3}, {0.5F});
  small.add_nvfp4("model.layers.0.mlp.shared_expert_gate", 1, 32);
  small.add_nvfp4("model.layers.0.self_attn.kv_b_proj", 64, 32);
  small.add_nvfp4("lm_head", 64, 32);
  const std::vector<Finding> findings = findings_of(small);
  EXPECT_THAT(findings,
              Contains(finding("router-bias-rounded", "e_score_correction_bias", "bf16")));
  EXPECT_THAT(findings,
              Contains(AllOf(finding("router-bias-shape", "e_score_correction_bias", "[3]"),
                             Field(&Finding::expected, HasSubstr("[2]")))));
  EXPECT_THAT(findings, Contains(finding("router-quantized", "shared_expert_gate", "NVFP4")));
  EXPECT_THAT(findings, Contains(finding("latent-attention-4bit", "kv_b_proj", "NVFP4")));
  EXPECT_THAT(findings,
              Contains(finding("embedding-quantized", "lm_head", "1156 bytes instead of 4096")));
}

}  // namespace
}  // namespace fewbit
