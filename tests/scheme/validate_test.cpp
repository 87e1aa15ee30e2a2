// SPDX-License-Identifier: Apache-2.0
// Each fault gives its finding, with names and numbers; without the fault there is none.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <ostream>
#include <string>

#include "fewbit/scheme.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string expert0 = "model.layers.0.mlp.experts.0.";
const std::string expert1 = "model.layers.0.mlp.experts.1.";

std::vector<Finding> findings_of(SmallCheckpoint& small, Depth depth = Depth::scales) {
  const Checkpoint checkpoint = small.open();
  Result<Identified> identified = identify(checkpoint);
  EXPECT_TRUE(identified) << identified.error().message();
  return validate(checkpoint, *identified, depth);
}

TEST(Validate, AGoodCheckpointHasNoFindings) {
  SmallCheckpoint quantized = SmallCheckpoint::modelopt();
  EXPECT_THAT(findings_of(quantized), IsEmpty());
  SmallCheckpoint plain = SmallCheckpoint::bf16();
  EXPECT_THAT(findings_of(plain), IsEmpty());
}

struct Fault {
  const char* rule;
  Level level;
  std::function<void(SmallCheckpoint&)> apply;
  std::string where;
  std::string found;     // part of it
  std::string expected;  // part of it
};
std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.rule; }

class ValidateFault : public testing::TestWithParam<Fault> {};

TEST_P(ValidateFault, IsFoundAlone) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  GetParam().apply(small);
  const std::vector<Finding> findings = findings_of(small);
  EXPECT_THAT(findings, Contains(AllOf(Field(&Finding::rule, GetParam().rule),
                                       Field(&Finding::level, GetParam().level),
                                       Field(&Finding::where, GetParam().where),
                                       Field(&Finding::found, HasSubstr(GetParam().found)),
                                       Field(&Finding::expected, HasSubstr(GetParam().expected)))));
  EXPECT_EQ(findings.size(), 1U) << "last: " << (findings.empty() ? "" : findings.back().rule);
}

const float nan = std::numeric_limits<float>::quiet_NaN();
const std::string up = expert0 + "up_proj";

INSTANTIATE_TEST_SUITE_P(
    Nvfp4, ValidateFault,
    testing::Values(
        Fault{"scale-missing", Level::error,
              [](SmallCheckpoint& c) { c.remove(up + ".weight_scale"); }, up + ".weight_scale",
              "weight u8 [16, 16] without weight_scale", "f8_e4m3 [16, 2]"},
        Fault{"global-scale-missing", Level::error,
              [](SmallCheckpoint& c) { c.remove(up + ".weight_scale_2"); }, up + ".weight_scale_2",
              "weight u8 [16, 16] + weight_scale f8_e4m3 [16, 2]", "weight_scale_2 f32 []"},
        Fault{"scale-dtype", Level::error,
              [](SmallCheckpoint& c) {
                c.add(up + ".weight_scale", DType::u8, {16, 2}, {0x38});
              },
              up + ".weight_scale", "u8 [16, 2]", "f8_e4m3 [16, 2]"},
        Fault{"scale-shape", Level::error,
              [](SmallCheckpoint& c) {
                c.add(up + ".weight_scale", DType::f8_e4m3, {16, 4}, {0x38});
              },
              up + ".weight_scale", "f8_e4m3 [16, 4]", "f8_e4m3 [16, 2]"},
        Fault{"global-scale-dtype", Level::error,
              [](SmallCheckpoint& c) { c.add_bf16(up + ".weight_scale_2", {}, {1.0F}); },
              up + ".weight_scale_2", "bf16 []", "f32 []"},
        Fault{"global-scale-shape", Level::error,
              [](SmallCheckpoint& c) { c.add_f32(up + ".weight_scale_2", {3}, {1.0F}); },
              up + ".weight_scale_2", "f32 [3]", "f32 []"},
        Fault{"scale-without-weight", Level::error,
              [](SmallCheckpoint& c) {
                c.add("model.layers.0.mlp.extra.weight_scale", DType::f8_e4m3, {16, 2}, {0x38});
              },
              "model.layers.0.mlp.extra.weight_scale", "weight_scale f8_e4m3 [16, 2]", "a weight"},
        // 31 good scales and one of another kind
        Fault{"scale-nan", Level::error,
              [](SmallCheckpoint& c) {
                std::vector<std::uint8_t> bytes(32, 0x38);
                bytes[7] = 0x7F;
                bytes[9] = 0xFF;
                c.add(up + ".weight_scale", DType::f8_e4m3, {16, 2}, bytes);
              },
              up + ".weight_scale", "2 of 32 scales are NaN", "finite"},
        Fault{"scale-negative", Level::warning,
              [](SmallCheckpoint& c) {
                std::vector<std::uint8_t> bytes(32, 0x38);
                bytes[31] = 0xB8;
                c.add(up + ".weight_scale", DType::f8_e4m3, {16, 2}, bytes);
              },
              up + ".weight_scale", "1 of 32 scales are negative", "above zero"},
        Fault{"scale-zero", Level::warning,
              [](SmallCheckpoint& c) {
                std::vector<std::uint8_t> bytes(32, 0x38);
                bytes[0] = 0x00;
                bytes[1] = 0x80;
                c.add(up + ".weight_scale", DType::f8_e4m3, {16, 2}, bytes);
              },
              up + ".weight_scale", "2 of 32 scales are zero", "above zero"},
        Fault{"global-scale-zero", Level::warning,
              [](SmallCheckpoint& c) {
                c.add_f32(expert1 + "down_proj.weight_scale_2", {1}, {0.0F});
              },
              expert1 + "down_proj.weight_scale_2", "0", "above zero"},
        Fault{
            "global-scale-value", Level::error,
            [](SmallCheckpoint& c) { c.add_f32(expert1 + "down_proj.weight_scale_2", {}, {nan}); },
            expert1 + "down_proj.weight_scale_2", "nan", "finite"},
        Fault{"gate-up-global", Level::warning,
              [](SmallCheckpoint& c) { c.add_f32(up + ".weight_scale_2", {}, {0.5F}); },
              expert0 + "gate_proj", "differ in 1 of 2 experts, by up to 2 times",
              "take gate's compute up wrong by up to 2 times"},
        Fault{"input-scale-unused", Level::info,
              [](SmallCheckpoint& c) {
                c.add_f32(up + ".input_scale", {}, {0.5F});
                c.add_f32(expert1 + "up_proj.input_scale", {}, {0.5F});
              },
              up + ".input_scale and 1 more (up_proj)", "4-bit activations", "16-bit activations"},
        Fault{"router-quantized", Level::warning,
              [](SmallCheckpoint& c) { c.add_nvfp4("model.layers.0.mlp.gate", 2, 32); },
              "model.layers.0.mlp.gate", "ModelOpt NVFP4", "16-bit"},
        Fault{"experts-missing", Level::error,
              [](SmallCheckpoint& c) {
                for (const char* suffix : {".weight", ".weight_scale", ".weight_scale_2"}) {
                  c.remove(up + suffix);
                }
              },
              "layers.0 up_proj", "1 experts, without 0", "experts 0 to 1"},
        Fault{"layers-missing", Level::error,
              [](SmallCheckpoint& c) {
                std::string config = SmallCheckpoint::config("");
                const std::string one = "\"num_hidden_layers\": 1";
                c.file("config.json",
                       config.replace(config.find(one), one.size(), "\"num_hidden_layers\": 2"));
              },
              "config.json", "layers 0 to 0", "2 layers by config.json"}));

const std::string attention = "model.layers.0.self_attn.";

INSTANTIATE_TEST_SUITE_P(
    OfTheModel, ValidateFault,
    testing::Values(
        Fault{"tensor-missing", Level::error,
              [](SmallCheckpoint& c) { c.remove(attention + "q_norm.weight"); },
              attention + "q_norm.weight", "no tensor", "[16] by config.json"},
        Fault{"tensor-missing", Level::error,
              [](SmallCheckpoint& c) { c.remove(attention + "k_proj.weight"); },
              attention + "k_proj.weight", "no tensor", "[16, 32]"},
        Fault{"tensor-missing", Level::error,
              [](SmallCheckpoint& c) { c.remove("model.norm.weight"); }, "model.norm.weight",
              "no tensor", "[32]"},
        Fault{"tensor-missing", Level::error,
              [](SmallCheckpoint& c) { c.remove("model.layers.0.mlp.gate.weight"); },
              "model.layers.0.mlp.gate.weight", "no tensor", "[2, 32]"},
        Fault{"tensor-missing", Level::error,
              [](SmallCheckpoint& c) {
                std::string config = SmallCheckpoint::config("");
                const std::string tied = "\"tie_word_embeddings\": true";
                c.file("config.json", config.replace(config.find(tied), tied.size(),
                                                     "\"tie_word_embeddings\": false"));
              },
              "lm_head.weight", "no tensor", "[64, 32]"},
        Fault{"tensor-shape", Level::error,
              [](SmallCheckpoint& c) {
                c.add_bf16(attention + "o_proj.weight", {32, 16});
              },
              attention + "o_proj.weight", "[32, 16]", "[32, 32]"},
        Fault{"tensor-shape", Level::error,
              [](SmallCheckpoint& c) { c.add_bf16(attention + "k_norm.weight", {32}); },
              attention + "k_norm.weight", "[32]", "[16]"},
        Fault{"tensor-shape", Level::error,
              [](SmallCheckpoint& c) {
                c.add_bf16("model.embed_tokens.weight", {1, 64, 32});
              },
              "model.embed_tokens.weight", "[1, 64, 32]", "[64, 32]"},
        Fault{"tensor-dtype", Level::error,
              [](SmallCheckpoint& c) {
                c.add("model.embed_tokens.weight", DType::i64, {64, 32}, {1});
              },
              "model.embed_tokens.weight", "i64", "bf16, f16 or f32"},
        Fault{"activation-gate", Level::error,
              [](SmallCheckpoint& c) {
                std::string config = SmallCheckpoint::config("");
                const std::string silu = "\"silu\"";
                c.file("config.json", config.replace(config.find(silu), silu.size(), "\"relu2\""));
              },
              "model.layers.0.mlp.experts.1.gate_proj", "a gate", "none for hidden_act relu2"},
        Fault{"bias-unsupported", Level::error,
              [](SmallCheckpoint& c) { c.add_bf16(attention + "q_proj.bias", {32}, {0.5F}); },
              attention + "q_proj.bias", "a bias", "none"},
        Fault{"tensor-unexpected", Level::error,
              [](SmallCheckpoint& c) {
                c.add_f32("model.layers.0.mlp.gate.e_score_correction_bias", {2}, {0.5F});
              },
              "model.layers.0.mlp.gate.e_score_correction_bias", "not read", "qwen3_moe"},
        Fault{"tensor-unexpected", Level::error,
              [](SmallCheckpoint& c) { c.add_bf16(attention + "sinks", {2}); }, attention + "sinks",
              "not read", "qwen3_moe"},
        Fault{"config-experts", Level::error,
              [](SmallCheckpoint& c) {
                const std::string expert = "model.layers.0.mlp.experts.2.";
                c.add_nvfp4(expert + "gate_proj", 16, 32);
                c.add_nvfp4(expert + "up_proj", 16, 32);
                c.add_nvfp4(expert + "down_proj", 32, 16);
              },
              "model.layers.0.mlp.experts.2.down_proj", "3 experts in layers.0",
              "2 by config.json"},
        Fault{"layers-extra", Level::error,
              [](SmallCheckpoint& c) {
                c.add_bf16("model.layers.1.input_layernorm.weight", {32});
                c.add_bf16("model.layers.1.self_attn.q_proj.weight", {32, 32});
              },
              "layer 1", "model.layers.1.input_layernorm", "1 layers by num_hidden_layers"},
        Fault{"layers-prediction", Level::info,
              [](SmallCheckpoint& c) {
                c.add_bf16("model.layers.1.input_layernorm.weight", {32});
                c.add_bf16("model.layers.1.self_attn.q_proj.weight", {32, 32});
                c.add_bf16("model.layers.1.eh_proj.weight", {32, 64});
              },
              "layer 1", "token-prediction", "1 layers by num_hidden_layers"}));

TEST(Validate, WhatAModelMayLeaveOutIsNoFault) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_f32(attention + "k_proj.k_scale", {}, {0.5F});
  small.add_f32(attention + "v_proj.v_scale", {}, {0.5F});
  small.add_f32(attention + "rotary_emb.inv_freq", {8}, {0.5F});
  small.add_bf16("lm_head.weight", {64, 32});  // a copy of the tied embedding
  small.add_bf16("visual.blocks.0.attn.qkv.weight", {96, 32});
  const std::vector<Finding> findings = findings_of(small);
  EXPECT_EQ(findings.size(), 2U);  // of the roles k_proj and v_proj
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.rule, "cache-scale-unused");
    EXPECT_EQ(finding.level, Level::info);
  }
}

// Only those of k_proj and v_proj are the cache's.
TEST(Validate, ScalesOfOutputsAreCalledSo) {
  for (const auto& [name, rule] : {std::pair{"k_proj.output_scale", "cache-scale-unused"},
                                   {"v_proj.output_scale", "cache-scale-unused"},
                                   {"o_proj.output_scale", "output-scale-unused"},
                                   {"q_proj.output_scale", "output-scale-unused"},
                                   {"q_proj.prob_output_scale", "output-scale-unused"}}) {
    SmallCheckpoint small = SmallCheckpoint::modelopt();
    small.add_f32(attention + name, {}, {0.5F});
    const std::vector<Finding> findings = findings_of(small);
    ASSERT_EQ(findings.size(), 1U) << name;
    EXPECT_EQ(findings[0].rule, rule) << name;
    EXPECT_EQ(findings[0].level, Level::info) << name;
  }
}

TEST(Validate, ATiedHeadWithValuesOfItsOwnIsFound) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_bf16("lm_head.weight", {64, 32}, {1.0F});
  EXPECT_THAT(findings_of(small), Contains(AllOf(Field(&Finding::rule, "tensor-unexpected"),
                                                 Field(&Finding::where, "lm_head.weight"))));
}

TEST(Validate, AnInfiniteOrNegativeGlobalScaleIsAnError) {
  for (const float value : {-1.0F, std::numeric_limits<float>::infinity()}) {
    SmallCheckpoint small = SmallCheckpoint::modelopt();
    small.add_f32(expert1 + "down_proj.weight_scale_2", {}, {value});
    EXPECT_THAT(findings_of(small), Contains(AllOf(Field(&Finding::rule, "global-scale-value"),
                                                   Field(&Finding::level, Level::error))));
  }
}

TEST(Validate, AWeightOfAnotherTypeIsFound) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add(up + ".weight", DType::i32, {16, 16});
  EXPECT_THAT(findings_of(small), Contains(AllOf(Field(&Finding::rule, "weight-dtype"),
                                                 Field(&Finding::found, "i32 [16, 16]"),
                                                 Field(&Finding::expected, HasSubstr("u8")))));
}

TEST(Validate, SizesThatConfigContradictsAreFound) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_nvfp4(expert0 + "down_proj", 48, 16);
  small.add_bf16("model.embed_tokens.weight", {63, 32});
  const std::vector<Finding> findings = findings_of(small);
  const auto size = [](const std::string& where, const char* found, const char* expected) {
    return AllOf(Field(&Finding::rule, "config-size"), Field(&Finding::where, where),
                 Field(&Finding::found, found), Field(&Finding::expected, HasSubstr(expected)));
  };
  EXPECT_THAT(findings, Contains(size(expert0 + "down_proj", "[48, 16]", "[32, 16]")));
  EXPECT_THAT(findings, Contains(size("model.embed_tokens", "[63, 32]", "[64, 32]")));
}

TEST(Validate, ALastExpertIsMissedBecauseTheRouterKnowsIt) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  for (const char* role : {"gate_proj", "up_proj", "down_proj"}) {
    small.remove(expert1 + role + ".weight");
  }
  const std::vector<Finding> findings = findings_of(small);
  EXPECT_EQ(findings.size(), 3U);
  EXPECT_THAT(findings, Each(AllOf(Field(&Finding::rule, "experts-missing"),
                                   Field(&Finding::found, "1 experts, without 1"))));
}

TEST(Validate, FindingsOfOneKindAreOneLine) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  for (const std::string& expert : {expert0, expert1}) {
    small.remove(expert + "up_proj.weight_scale").remove(expert + "down_proj.weight_scale");
  }
  const std::vector<Finding> findings = findings_of(small);
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_EQ(findings[0].where, up + ".weight_scale and 1 more (up_proj)");
}

TEST(Validate, HeadersAloneDoNotReadScales) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add(up + ".weight_scale", DType::f8_e4m3, {16, 2}, {0x7F});
  EXPECT_THAT(findings_of(small, Depth::headers), IsEmpty());
}

}  // namespace
}  // namespace fewbit
