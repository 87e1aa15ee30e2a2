// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

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

constexpr const char* expert0 = "model.layers.0.mlp.experts.0.";

Identified identified(SmallCheckpoint& small) {
  Result<Identified> found = identify(small.open());
  EXPECT_TRUE(found) << found.error().message();
  return *std::move(found);
}

auto rule(const char* name) { return Field(&Finding::rule, name); }

void expect_nvfp4_experts(const Identified& found) {
  EXPECT_EQ(found.producer, Producer::modelopt);
  for (const Module& module : found.modules) {
    EXPECT_EQ(module.unreadable, "") << module.name;
    const bool expert = module.expert >= 0;
    EXPECT_EQ(module.scheme, expert ? nvfp4_scheme() : plain_scheme(DType::bf16)) << module.name;
  }
}

TEST(IdentifyModelopt, NamesEveryModuleWithItsRoleSizeAndEvidence) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  const Identified found = identified(small);
  expect_nvfp4_experts(found);
  EXPECT_THAT(found.findings, IsEmpty());
  const Module* down = found.find(0, Role::down_proj, 1);
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->name, "model.layers.0.mlp.experts.1.down_proj");
  EXPECT_EQ(down->n, SmallCheckpoint::hidden);
  EXPECT_EQ(down->k, SmallCheckpoint::inner);
  EXPECT_EQ(down->evidence,
            "weight u8 [32, 8] + weight_scale f8_e4m3 [32, 1] + weight_scale_2 f32 []");
  EXPECT_EQ(down->part("weight_scale"), down->name + ".weight_scale");
  EXPECT_EQ(down->part("qzeros"), "");
  EXPECT_EQ(found.find("model.layers.0.mlp.gate")->role, Role::router);
  EXPECT_EQ(found.find("model.layers.0.mlp"), nullptr);
  EXPECT_THAT(found.producer_evidence, AllOf(HasSubstr("6 of"), HasSubstr("modelopt")));
}

TEST(IdentifyModelopt, EveryTensorBelongsToExactlyOneModule) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  const Checkpoint checkpoint = small.open();
  const Identified found = *identify(checkpoint);
  std::multiset<std::string> of_modules;
  for (const Module& module : found.modules) {
    for (const Module::Part& part : module.parts) of_modules.insert(part.tensor);
  }
  std::multiset<std::string> of_files;
  for (const TensorInfo& info : checkpoint.tensors()) of_files.insert(info.name);
  EXPECT_EQ(of_modules, of_files);
}

TEST(IdentifyModelopt, EitherConfigPlaceIsEnough) {
  SmallCheckpoint only_hf = SmallCheckpoint::modelopt();
  only_hf.file("config.json", SmallCheckpoint::config(""));
  Identified found = identified(only_hf);
  expect_nvfp4_experts(found);
  EXPECT_THAT(found.findings, IsEmpty());
  EXPECT_THAT(found.producer_evidence, HasSubstr("hf_quant_config.json"));

  SmallCheckpoint nested = SmallCheckpoint::modelopt();
  nested.file("hf_quant_config.json", "{}");
  nested.file("config.json", SmallCheckpoint::config(R"("text_config": {"quantization_config":
      {"quant_method": "modelopt_fp4", "quant_algo": "nvfp4", "ignore": ["lm_head",
      "model.layers.0.mlp.gate", "model.layers.0.self_attn*"],
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4}}}}},)"));
  found = identified(nested);
  expect_nvfp4_experts(found);
}

TEST(IdentifyModelopt, TensorsAreEnoughWithoutAnyConfig) {
  SmallCheckpoint bare = SmallCheckpoint::modelopt();
  bare.file("config.json", SmallCheckpoint::config(""));
  const Checkpoint checkpoint = bare.open();
  std::filesystem::remove(bare.write() / "hf_quant_config.json");
  const Identified found = *identify(checkpoint);
  expect_nvfp4_experts(found);
  EXPECT_THAT(found.findings, Contains(rule("config-missing")));
}

TEST(IdentifyModelopt, PlacesThatDifferAreReported) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.file("hf_quant_config.json",
             R"({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}})");
  const Identified found = identified(small);
  expect_nvfp4_experts(found);
  EXPECT_THAT(found.findings,
              Contains(AllOf(rule("config-places-differ"),
                             Field(&Finding::found, "quant_algo FP8, 1 excluded entries"),
                             Field(&Finding::expected, HasSubstr("quant_algo W4A16_NVFP4, 3")))));
}

TEST(IdentifyModelopt, AGroupSizeThatTheScalesContradictIsReported) {
  const auto with = [](const std::string& size) {
    SmallCheckpoint small = SmallCheckpoint::modelopt();
    small.file("hf_quant_config.json",
               R"({"quantization": {"quant_algo": "W4A16_NVFP4", "group_size": )" + size +
                   R"(, "exclude_modules": ["lm_head",
        "model.layers.0.mlp.gate", "model.layers.0.self_attn*"]}})");
    return identified(small).findings;
  };
  EXPECT_THAT(with("16"), IsEmpty());
  for (const char* size : {"\"16\"", "0", "1e400", "true", "{}"}) {
    EXPECT_THAT(with(size), ElementsAre(AllOf(rule("config-value"),
                                              Field(&Finding::expected, HasSubstr("-1 (")))))
        << size;
  }
  for (const char* size : {"32", "-1", "null"}) {
    EXPECT_THAT(with(size),
                Contains(AllOf(rule("config-group-size"), Field(&Finding::found, HasSubstr(size)),
                               Field(&Finding::expected, HasSubstr("16, as")))))
        << size;
  }
}

TEST(IdentifyModelopt, AnAlgorithmThatTheTensorsContradictIsReported) {
  for (const char* algorithm : {"FP8", "W4A16_AWQ", "MXFP4"}) {
    SmallCheckpoint small = SmallCheckpoint::modelopt();
    const std::string text = std::string(R"("quant_algo": ")") + algorithm +
                             R"(", "exclude_modules": ["lm_head", "model.layers.0.mlp.gate",
        "model.layers.0.self_attn*"])";
    small.file("hf_quant_config.json", "{\"quantization\": {" + text + "}}");
    small.file("config.json",
               SmallCheckpoint::config(R"("quantization_config": {"quant_method": "modelopt", )" +
                                       text + "},"));
    EXPECT_THAT(
        identified(small).findings,
        Contains(AllOf(rule("config-algorithm"), Field(&Finding::expected, HasSubstr(algorithm)))));
  }
}

TEST(IdentifyModelopt, TensorsOutrankTheExcludeList) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.file("config.json", SmallCheckpoint::config(R"("quantization_config": {
      "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head",
      "model.layers.0.mlp.gate", "model.layers.0*"]},)"));
  const Identified found = identified(small);
  expect_nvfp4_experts(found);
  EXPECT_THAT(found.findings,
              Contains(AllOf(rule("config-excludes-quantized"),
                             Field(&Finding::where, std::string(expert0) + "up_proj and 1 more "
                                                                           "(up_proj)"))));
}

TEST(IdentifyModelopt, APlainModuleThatIsNotExcludedIsReported) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.file("config.json", SmallCheckpoint::config(R"("quantization_config": {
      "quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]},)"));
  const Identified found = identified(small);
  expect_nvfp4_experts(found);
  const auto expects = [](const char* where, Level level) {
    return AllOf(rule("config-expects-quantized"), Field(&Finding::where, HasSubstr(where)),
                 Field(&Finding::level, level));
  };
  EXPECT_THAT(found.findings, Contains(expects("self_attn.q_proj", Level::warning)));
  EXPECT_THAT(found.findings, Contains(expects("mlp.gate", Level::info)));
}

TEST(IdentifyModelopt, LayersBehindTheLastAreTakenByTensorsOnly) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_bf16("model.layers.1.mlp.experts.0.up_proj.weight", {16, 32});
  EXPECT_THAT(identified(small).findings, IsEmpty());
}

TEST(IdentifyModelopt, AMixedTableListsWhatIsQuantized) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.file("hf_quant_config.json", R"({"quantization": {"quant_algo": "MIXED_PRECISION",
      "quantized_layers": {"model.layers.0.mlp.experts": {"quant_algo": "NVFP4"}}}})");
  small.file("config.json", SmallCheckpoint::config(""));
  EXPECT_THAT(identified(small).findings, IsEmpty());
}

TEST(IdentifyModelopt, InputScalesMakeEveryModuleAskForFourBitActivations) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_f32(std::string(expert0) + "up_proj.input_scale", {}, {1.0F});
  const Identified found = identified(small);
  // An expert that calibration never reached has no input_scale, yet the same scheme.
  EXPECT_EQ(found.find(0, Role::up_proj, 0)->scheme.activation, DType::f4_e2m1);
  EXPECT_EQ(found.find(0, Role::up_proj, 1)->scheme, found.find(0, Role::up_proj, 0)->scheme);
}

TEST(IdentifyModelopt, FusedExpertsHoldThemAll) {
  SmallCheckpoint small;
  const std::string experts = "model.layers.0.mlp.experts.";
  small.add(experts + "gate_up_proj", DType::u8, {2, 32, 16});
  small.add(experts + "gate_up_proj_weight_scale", DType::f8_e4m3, {2, 32, 2}, {0x38});
  small.add_f32(experts + "gate_up_proj_weight_scale_2", {2}, {1.0F, 2.0F});
  small.add_nvfp4(experts + "down_proj", 32, 16);
  small.remove(experts + "down_proj.weight").remove(experts + "down_proj.weight_scale");
  small.add(experts + "down_proj.weight", DType::u8, {2, 32, 8});
  small.add(experts + "down_proj.weight_scale", DType::f8_e4m3, {2, 32, 1}, {0x38});
  const Identified found = identified(small);
  const Module* gate_up = found.find(0, Role::gate_up_proj, all_experts);
  ASSERT_NE(gate_up, nullptr);
  EXPECT_EQ(gate_up->unreadable, "");
  EXPECT_EQ(gate_up->experts, 2);
  EXPECT_EQ(gate_up->n, 32);
  EXPECT_EQ(gate_up->k, 32);
  EXPECT_EQ(found.find(0, Role::down_proj, all_experts)->scheme, nvfp4_scheme());
}

TEST(IdentifyModelopt, FusedExpertsMayBeTransposed) {
  SmallCheckpoint small;
  const std::string module = "model.layers.0.feed_forward.experts.gate_up_proj";
  small.add(module, DType::u8, {2, 16, 48});  // [E, in/2, out]
  small.add(module + "_weight_scale", DType::f8_e4m3, {2, 2, 48}, {0x38});
  small.add_f32(module + "_weight_scale_2", {}, {1.0F});
  const Identified found = identified(small);
  EXPECT_EQ(found.find(module)->unreadable, "");
  EXPECT_TRUE(found.find(module)->transposed);
  EXPECT_FALSE(found.find(module)->alternating);
  EXPECT_EQ(found.find(module)->n, 48);
  EXPECT_EQ(found.find(module)->k, 32);
}

struct OtherFormat {
  DType weight;
  Shape weight_shape;
  DType scale;
  Shape scale_shape;
  DType decoded;
  Granularity granularity;
};

TEST(IdentifyModelopt, OtherAlgorithmsAreToldByTheirTensors) {
  const std::string module = "model.layers.0.mlp.up_proj";
  for (const OtherFormat& row : {
           OtherFormat{DType::f8_e4m3, {16, 32}, DType::f32, {}, DType::f8_e4m3, {0, 0}},
           OtherFormat{DType::f8_e4m3, {16, 32}, DType::u8, {16, 1}, DType::f8_e4m3, {1, 32}},
           OtherFormat{DType::u8, {16, 32}, DType::u8, {16, 2}, DType::f4_e2m1, {1, 32}},
           OtherFormat{DType::u8, {8, 64}, DType::bf16, {16, 2}, DType::i4, {1, 32}},
           OtherFormat{DType::i8, {16, 32}, DType::f32, {16}, DType::i8, {1, 0}},
       }) {
    SmallCheckpoint small;
    small.add(module + ".weight", row.weight, row.weight_shape);
    small.add(module + ".weight_scale", row.scale, row.scale_shape, {0x40});
    small.file("hf_quant_config.json", R"({"quantization": {"quant_algo": "X"}})");
    const Identified found = identified(small);
    const Module& first = found.modules.front();
    EXPECT_EQ(first.scheme.producer, Producer::modelopt) << first.evidence;
    EXPECT_EQ(first.unreadable, "") << first.evidence;
    EXPECT_EQ(first.scheme.weight, row.decoded) << first.evidence;
    ASSERT_TRUE(first.scheme.scale) << first.evidence;
    EXPECT_EQ(first.scheme.scale->granularity, row.granularity) << first.evidence;
    EXPECT_EQ(first.n, 16) << first.evidence;
    EXPECT_THAT(found.findings, Contains(rule("config-algorithm-unknown")));
  }
}

TEST(IdentifyModelopt, WhatCanNotBeDecodedIsNamed) {
  SmallCheckpoint six;
  six.add("m.weight", DType::u8, {16, 48}).add("m.weight_scale", DType::u8, {16, 2});
  six.file("hf_quant_config.json", R"({"quantization": {"quant_algo": "W6A6"}})");
  EXPECT_THAT(identified(six).modules.front().unreadable, HasSubstr("W6A6"));

  SmallCheckpoint svd = SmallCheckpoint::modelopt();
  svd.add_bf16(std::string(expert0) + "up_proj.svdquant_lora_a", {4, 32}, {1.0F});
  EXPECT_THAT(identified(svd).find(0, Role::up_proj, 0)->unreadable, HasSubstr("NVFP4_SVD"));

  SmallCheckpoint odd;
  odd.add("m.weight", DType::u8, {8, 64}).add("m.weight_scale", DType::bf16, {16, 3});
  odd.file("hf_quant_config.json", R"({"quantization": {"quant_algo": "W4A16_AWQ"}})");
  EXPECT_THAT(identified(odd).modules.front().unreadable,
              AllOf(HasSubstr("[16, 3]"), HasSubstr("[16, 64]")));
}

TEST(IdentifyModelopt, PreQuantScalesArePartOfTheScheme) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.add_bf16(std::string(expert0) + "up_proj.pre_quant_scale", {32}, {1.0F});
  const Identified found = identified(small);
  EXPECT_TRUE(found.find(0, Role::up_proj, 0)->scheme.pre_quant_scale);
  EXPECT_EQ(found.find(0, Role::up_proj, 0)->unreadable, "");
  EXPECT_FALSE(found.find(0, Role::up_proj, 1)->scheme.pre_quant_scale);
}

TEST(IdentifyModelopt, AMixedTableIsHeldAgainstTheTensors) {
  const auto with = [](const std::string& table) {
    SmallCheckpoint small = SmallCheckpoint::modelopt();
    small.file("hf_quant_config.json",
               R"({"quantization": {"quant_algo": "MIXED_PRECISION", "quantized_layers": {)" +
                   table + "}}}");
    small.file("config.json", SmallCheckpoint::config(""));
    return identified(small).findings;
  };
  const std::string experts = R"("model.layers.0.mlp.experts": {"quant_algo": "NVFP4"})";
  EXPECT_THAT(with(experts), IsEmpty());
  EXPECT_THAT(with(R"("model.layers.0.mlp.experts": {"quant_algo": "FP8"})"),
              Contains(AllOf(rule("config-algorithm"),
                             Field(&Finding::expected, HasSubstr("says quant_algo FP8")))));
  EXPECT_THAT(with(experts + R"(, "model.layers.0.mlp.exp": {"quant_algo": "NVFP4"})"),
              Contains(AllOf(rule("config-layer-unknown"),
                             Field(&Finding::found, HasSubstr("model.layers.0.mlp.exp")))));
  EXPECT_THAT(
      with(experts + R"(, "model.layers.0.self_attn.o_proj": {"quant_algo": "FP8"})"),
      Contains(AllOf(rule("config-expects-quantized"),
                     Field(&Finding::where, HasSubstr("model.layers.0.self_attn.o_proj")))));
}

TEST(IdentifyModelopt, ACorruptConfigIsAnError) {
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.file("hf_quant_config.json", "{\"quantization\": ");
  const auto found = identify(small.open());
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::corrupt);
  EXPECT_THAT(found.error().message(), HasSubstr("hf_quant_config.json"));
}

}  // namespace
}  // namespace fewbit
