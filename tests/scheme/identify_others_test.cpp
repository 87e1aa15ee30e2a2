// SPDX-License-Identifier: Apache-2.0
// Unquantized checkpoints, and everything that must not be taken for one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "fewbit/scheme.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* linear = "model.layers.0.mlp.experts.0.up_proj";

Identified identified(SmallCheckpoint& small) {
  Result<Identified> found = identify(small.open());
  EXPECT_TRUE(found) << found.error().message();
  return *std::move(found);
}

TEST(IdentifyPlain, SixteenBitWeightsAreUnquantized) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  const Identified found = identified(small);
  EXPECT_EQ(found.producer, Producer::unquantized);
  EXPECT_THAT(found.findings, IsEmpty());
  const Module* down = found.find(0, Role::down_proj, 1);
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->scheme, plain_scheme(DType::bf16));
  EXPECT_EQ(down->n, 32);
  EXPECT_EQ(down->k, 16);
  EXPECT_EQ(found.find("model.norm")->n, 32);
  EXPECT_EQ(found.find("model.norm")->k, 0);
}

TEST(IdentifyPlain, KeyScalesTablesAndBiasesAreNoQuantization) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  small.add_f32("model.layers.0.self_attn.k_proj.k_scale", {}, {1.0F});
  small.add_f32("model.layers.0.mlp.gate.e_score_correction_bias", {2}, {1.0F});
  small.add("model.position_ids", DType::i64, {1, 4});
  small.add_bf16("model.layers.0.self_attn.q_proj.bias", {32});
  const Identified found = identified(small);
  EXPECT_EQ(found.producer, Producer::unquantized);
  EXPECT_THAT(found.findings, IsEmpty());
  EXPECT_EQ(found.find("model.layers.0.mlp.gate.e_score_correction_bias")->role, Role::router_bias);
}

TEST(IdentifyPlain, FusedExpertsLieEitherWayRound) {
  const std::string gate_up = "model.layers.0.mlp.experts.gate_up_proj";
  SmallCheckpoint rows;
  rows.add_bf16(gate_up, {2, 48, 32}).file("config.json", SmallCheckpoint::config(""));
  const Identified found = identified(rows);
  EXPECT_EQ(found.find(gate_up)->unreadable, "");
  EXPECT_EQ(found.find(gate_up)->experts, 2);
  EXPECT_EQ(found.find(gate_up)->n, 48);

  SmallCheckpoint columns;
  columns.add_bf16(gate_up, {2, 32, 48}).file("config.json", SmallCheckpoint::config(""));
  const Identified turned = identified(columns);
  EXPECT_EQ(turned.find(gate_up)->unreadable, "");
  EXPECT_TRUE(turned.find(gate_up)->transposed);
  EXPECT_EQ(turned.find(gate_up)->n, 48);
  EXPECT_EQ(turned.find(gate_up)->k, 32);

  // Square: only the family tells.
  struct Row {
    const char* type;
    bool transposed;
    bool alternating;
  };
  for (const Row& row : {Row{"llama4_text", true, false}, Row{"gpt_oss", true, true},
                         Row{"qwen3_5_moe", false, false}}) {
    SmallCheckpoint square;
    square.add_bf16(gate_up, {2, 32, 32});
    square.file("config.json",
                std::string(R"({"hidden_size": 32, "model_type": ")") + row.type + "\"}");
    const Identified one = identified(square);
    EXPECT_EQ(one.find(gate_up)->unreadable, "") << row.type;
    EXPECT_EQ(one.find(gate_up)->transposed, row.transposed) << row.type;
    EXPECT_EQ(one.find(gate_up)->alternating, row.alternating) << row.type;
  }

  SmallCheckpoint unknown;
  unknown.add_bf16(gate_up, {2, 48, 32});
  EXPECT_THAT(identified(unknown).find(gate_up)->unreadable, HasSubstr("hidden_size"));
}

struct Part {
  const char* suffix;
  DType dtype;
  Shape shape;
};
struct Named {
  const char* method;  // quant_method; empty: no config at all
  std::vector<Part> parts;
  Producer producer;
};

TEST(IdentifyOthers, TensorsNameTheProducerWithOrWithoutAConfig) {
  const std::vector<Named> rows = {
      {"",
       {{"W_q", DType::u8, {8, 32}}, {"scale", DType::f16, {16}}, {"zero", DType::f16, {16}}},
       Producer::hqq},
      {"",
       {{"q_weight", DType::i32, {4, 16}},
        {"q_invperm", DType::i32, {32}},
        {"q_scale", DType::i32, {1, 2}},
        {"q_scale_max", DType::f16, {1}},
        {"q_groups", DType::i16, {2}}},
       Producer::exl2},
      {"",
       {{"trellis", DType::i16, {2, 1, 64}}, {"suh", DType::f16, {32}}, {"svh", DType::f16, {16}}},
       Producer::exl3},
      // MLX
      {"",
       {{"weight", DType::u32, {16, 4}},
        {"scales", DType::f16, {16, 1}},
        {"biases", DType::f16, {16, 1}}},
       Producer::unknown},
      // nothing that is known
      {"", {{"weight", DType::u8, {16, 16}}}, Producer::unknown},
      {"",
       {{"weight", DType::bf16, {16, 32}}, {"weight_scale", DType::f32, {16}}},
       Producer::unknown},
      {"", {{"weight_scale", DType::f32, {16}}}, Producer::unknown},
  };
  for (const Named& row : rows) {
    SmallCheckpoint small;
    small.add_bf16("model.norm.weight", {32}, {1.0F});
    for (const Part& part : row.parts) {
      small.add(std::string(linear) + "." + part.suffix, part.dtype, part.shape);
    }
    if (*row.method != '\0') {
      small.file("config.json", std::string(R"({"quantization_config": {"quant_method": ")") +
                                    row.method + "\"}}");
    }
    const Identified found = identified(small);
    SCOPED_TRACE(std::string(producer_name(row.producer)) + " " + row.parts.front().suffix);
    EXPECT_STREQ(producer_name(found.producer), producer_name(row.producer));
    const Module* module = found.find(linear);
    ASSERT_NE(module, nullptr);
    EXPECT_EQ(module->parts.size(), row.parts.size());
    EXPECT_EQ(module->scheme.producer, row.producer);
    if (row.producer != Producer::unknown) {
      EXPECT_THAT(module->unreadable, HasSubstr(producer_name(row.producer)));
    } else {
      EXPECT_NE(module->unreadable, "");
    }
    EXPECT_EQ(found.find("model.norm")->unreadable, "");
  }
}

TEST(IdentifyOthers, AnUnknownMethodLeavesNoMatrixReadable) {
  for (const char* block : {R"({"quant_method": "sparkle4"})", R"({"bits": 4})", R"("sparkle4")"}) {
    SmallCheckpoint small = SmallCheckpoint::bf16();
    small.file("config.json",
               SmallCheckpoint::config(std::string("\"quantization_config\": ") + block + ","));
    const Identified found = identified(small);
    EXPECT_EQ(found.producer, Producer::unknown) << block;
    EXPECT_THAT(found.find(linear)->unreadable, HasSubstr("quant_method")) << block;
    EXPECT_EQ(found.find("model.norm")->unreadable, "");
    for (const Module& module : found.modules) {
      if (module.role != Role::up_proj && module.role != Role::q_proj) continue;
      EXPECT_THAT(module.unreadable, HasSubstr("quant_method")) << module.name;
    }
  }
  SmallCheckpoint named = SmallCheckpoint::bf16();
  named.file("config.json",
             SmallCheckpoint::config(R"("quantization_config": {"quant_method": "sparkle4"},)"));
  EXPECT_THAT(identified(named).find(linear)->unreadable,
              HasSubstr("quant_method \"sparkle4\" of config.json quantization_config"));
}

TEST(IdentifyOthers, AMethodWhosePlainTensorsAreQuantizedWhileLoadingIsNotUnquantized) {
  SmallCheckpoint small = SmallCheckpoint::bf16();
  small.file("config.json", SmallCheckpoint::config(
                                R"("quantization_config": {"quant_method": "bitsandbytes"},)"));
  const Identified found = identified(small);
  EXPECT_EQ(found.producer, Producer::bitsandbytes);
  EXPECT_THAT(found.find(linear)->unreadable, HasSubstr("quantized while loading"));
  EXPECT_EQ(found.find("model.norm")->unreadable, "");
}

TEST(IdentifyOthers, AConfigThatTheTensorsContradictIsStale) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.file("config.json",
             SmallCheckpoint::config(R"("quantization_config": {"quant_method": "fp8"},)"));
  const Identified found = identified(small);
  EXPECT_EQ(found.producer, Producer::modelopt);
  EXPECT_THAT(found.findings,
              Contains(AllOf(Field(&Finding::rule, "config-methods-differ"),
                             Field(&Finding::level, Level::info),
                             Field(&Finding::found, "quant_method \"fp8\""),
                             Field(&Finding::expected,
                                   AllOf(HasSubstr("hf_quant_config.json says"),
                                         HasSubstr("config.json quantization_config is stale"))))));
  EXPECT_THAT(found.findings, Not(Contains(Field(&Finding::rule, "config-producer"))));
}

TEST(IdentifyOthers, NullAndEmptyBlocksAreNone) {
  for (const char* block : {"null", "{}"}) {
    SmallCheckpoint small = SmallCheckpoint::bf16();
    small.file("config.json",
               SmallCheckpoint::config(std::string("\"quantization_config\": ") + block + ","));
    EXPECT_EQ(identified(small).producer, Producer::unquantized) << block;
  }
}

}  // namespace
}  // namespace fewbit
