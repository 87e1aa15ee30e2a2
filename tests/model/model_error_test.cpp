// SPDX-License-Identifier: Apache-2.0
// Checkpoints and calls that a model refuses, and what it says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/ascii.hpp"
#include "model/model_fixture.hpp"

namespace fewbit {
namespace {

using test::TinyConfig;
using test::TinyModel;
using test::TinyTensor;
using testing::HasSubstr;

class ModelErrors : public test::ModelTest {
 protected:
  void expect_refused(const TinyModel& tiny, ErrorCode code,
                      const std::vector<std::string>& texts) {
    const auto model = try_load(tiny);
    ASSERT_FALSE(model);
    EXPECT_STREQ(error_code_name(model.error().code), error_code_name(code))
        << model.error().message();
    for (const std::string& text : texts) EXPECT_THAT(model.error().message(), HasSubstr(text));
  }
};

TEST_F(ModelErrors, AMissingTensorIsNamedWithItsShape) {
  for (const auto& [name, shape] : {std::pair{"model.norm.weight", "[32]"},
                                    std::pair{"model.layers.1.self_attn.q_norm.weight", "[8]"},
                                    std::pair{"model.layers.0.self_attn.k_proj.weight", "[16, 32]"},
                                    std::pair{"model.layers.0.mlp.gate.weight", "[4, 32]"},
                                    std::pair{"lm_head.weight", "[48, 32]"},
                                    std::pair{"model.embed_tokens.weight", "[48, 32]"}}) {
    TinyModel tiny{TinyConfig{}};
    tiny.tensors().erase(name);
    expect_refused(tiny, ErrorCode::not_found, {name, "is missing", shape});
  }
}

TEST_F(ModelErrors, AMissingExpertIsNamed) {
  TinyModel tiny{TinyConfig{}};
  tiny.tensors().erase("model.layers.1.mlp.experts.2.up_proj.weight");
  const auto model = try_load(tiny);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message(), HasSubstr("layer 1"));
  EXPECT_THAT(model.error().message(), HasSubstr("missing or incomplete: 2"));
}

TEST_F(ModelErrors, AWrongShapeIsGivenWithTheRightOne) {
  for (const auto& [name, found, wanted] :
       {std::tuple{"model.norm.weight", Shape{31}, "[32]"},
        std::tuple{"model.layers.1.self_attn.q_norm.weight", Shape{8, 1}, "[8]"},
        std::tuple{"model.layers.0.self_attn.k_proj.weight", Shape{16, 31}, "[16, 32]"},
        std::tuple{"model.layers.0.self_attn.o_proj.weight", Shape{31, 32}, "[32, 32]"},
        std::tuple{"lm_head.weight", Shape{47, 32}, "[48, 32]"}}) {
    TinyModel tiny{TinyConfig{}};
    TinyTensor& tensor = tiny.tensors().at(name);
    tensor.shape = found;
    tensor.values.resize(static_cast<std::size_t>(*shape_elements(found)));
    expect_refused(tiny, ErrorCode::corrupt, {name, shape_text(found), wanted});
  }
}

TEST_F(ModelErrors, ExpertsMustHaveTheSizesOfTheConfig) {
  TinyModel tiny{TinyConfig{}};
  tiny.config_json().set("moe_intermediate_size", Json(20));
  expect_refused(tiny, ErrorCode::inconsistent, {"model.layers.0.mlp.experts", "16", "20"});
  TinyModel fewer{TinyConfig{}};
  fewer.config_json().set("num_experts", Json(5));
  const auto model = try_load(fewer);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message(), HasSubstr("[4, 32]"));
  EXPECT_THAT(model.error().message(), HasSubstr("[5, 32]"));
}

TEST_F(ModelErrors, AWrongDtypeIsNamed) {
  for (const char* name : {"model.norm.weight", "model.layers.0.self_attn.q_proj.weight",
                           "model.embed_tokens.weight"}) {
    for (const DType dtype : {DType::i32, DType::f64}) {
      TinyModel tiny{TinyConfig{}};
      tiny.tensors().at(name).dtype = dtype;
      const auto model = try_load(tiny);
      ASSERT_FALSE(model) << name << " " << dtype_name(dtype);
      const std::string module(name, std::string_view(name).rfind('.'));
      EXPECT_THAT(model.error().message(), HasSubstr(module));
      EXPECT_THAT(lower_ascii(model.error().message()), HasSubstr(dtype_name(dtype)));
    }
  }
}

TEST_F(ModelErrors, ABiasThatTheFamilyDoesNotHaveIsRefused) {
  const std::string attention = "model.layers.0.self_attn.q_proj.bias";
  const std::string expert = "model.layers.0.mlp.experts.1.up_proj.bias";
  TinyModel tiny{TinyConfig{}};
  tiny.tensors()[attention] = TinyTensor{DType::f32, {32}, std::vector<float>(32)};
  tiny.tensors()[expert] = TinyTensor{DType::f32, {16}, std::vector<float>(16, -0.0F)};
  EXPECT_TRUE(try_load(tiny)) << "zeros change nothing";
  for (const std::string& name : {attention, expert}) {
    TinyModel other = tiny;
    other.tensors()[name].values.back() = 1e-6F;
    expect_refused(other, ErrorCode::unsupported, {name, "has no bias here"});
  }
  TinyModel longer = tiny;
  longer.tensors()[attention] = TinyTensor{DType::f32, {33}, std::vector<float>(33)};
  expect_refused(longer, ErrorCode::unsupported, {attention});
}

TEST_F(ModelErrors, ALayerThatTheConfigDoesNotCountIsRefused) {
  TinyModel tiny{TinyConfig{}};
  tiny.config_json().set("num_hidden_layers", Json(1));
  expect_refused(tiny, ErrorCode::inconsistent,
                 {"num_hidden_layers is 1", "decoder layer 1", "config.json"});
}

TEST_F(ModelErrors, TensorsThatTheFamilyDoesNotReadAreListed) {
  for (const char* name :
       {"model.layers.0.mlp.gate.e_score_correction_bias", "model.layers.0.self_attn.sinks",
        "model.layers.1.self_attn.q_proj.lora_A.weight", "model.norm.bias", "foo.bar",
        "model.layers.0.mlp.shared_expert.up_proj.weight"}) {
    TinyModel tiny{TinyConfig{}};
    tiny.tensors()[name] = TinyTensor{DType::f32, {4}, std::vector<float>(4)};
    expect_refused(tiny, ErrorCode::unsupported, {name, "does not know 1 of"});
  }
  TinyModel tiny{TinyConfig{}};
  for (int i = 0; i < 9; ++i) {
    tiny.tensors()["foo." + std::to_string(i)] = TinyTensor{DType::f32, {1}, {0.0F}};
  }
  expect_refused(tiny, ErrorCode::unsupported, {"does not know 9 of", "foo.0, ", "and 5 more"});
}

TEST_F(ModelErrors, AScaleBesideANormIsRefused) {
  TinyModel tiny{TinyConfig{}};
  tiny.tensors()["model.norm.weight_scale"] = TinyTensor{DType::f32, {1}, {2.0F}};
  expect_refused(tiny, ErrorCode::unsupported, {"model.norm", "weight_scale"});
}

TEST_F(ModelErrors, WhatDoesNotChangeTheResultsMayStayUnread) {
  TinyModel tiny{TinyConfig{}};
  for (const char* name :
       {"model.layers.0.self_attn.k_proj.k_scale", "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.q_proj.input_scale", "model.layers.2.enorm.weight",
        "model.layers.2.self_attn.q_proj.weight", "visual.patch_embed.weight"}) {
    tiny.tensors()[name] = TinyTensor{DType::f32, {1}, {2.0F}};
  }
  const auto model = try_load(tiny);
  EXPECT_TRUE(model) << model.error().message();
}

TEST_F(ModelErrors, ANanInTheRouterNamesItsLayer) {
  TinyModel tiny{TinyConfig{}};
  tiny.tensors().at("model.layers.1.mlp.gate.weight").values[3] = -std::nanf("");
  const Model model = load(tiny);
  Sequence sequence = *model.new_sequence(10);
  const auto logits = model.forward(sequence, std::vector<std::int32_t>{1, 2}, Model::Logits::all);
  ASSERT_FALSE(logits);
  EXPECT_THAT(logits.error().message(), HasSubstr("model.layers.1.mlp.gate"));
  EXPECT_THAT(logits.error().message(), HasSubstr("is NaN"));
}

TEST_F(ModelErrors, UnknownFamiliesAndActivationsListTheKnownOnes) {
  TinyModel tiny{TinyConfig{}};
  tiny.config_json().set("model_type", Json("llama"));
  expect_refused(tiny, ErrorCode::unsupported, {"\"llama\"", "qwen3_moe", "config.json"});
  TinyModel mixtral{TinyConfig{}};
  mixtral.config_json().set("model_type", Json("mixtral"));
  // Mixtral has one name for the width of its experts.
  mixtral.config_json().set("intermediate_size", Json(TinyConfig{}.expert_width));
  expect_refused(mixtral, ErrorCode::unsupported, {"\"mixtral\"", "qwen3_moe", "config.json"});
  TinyModel mish{TinyConfig{}};
  mish.config_json().set("hidden_act", Json("mish"));
  expect_refused(mish, ErrorCode::unsupported, {"mish", "silu"});
}

TEST_F(ModelErrors, OptionsAreChecked) {
  const TinyModel tiny{TinyConfig{}};
  ModelOptions options = f32_options();
  options.activation_dtype = DType::f16;
  EXPECT_THAT(try_load(tiny, options).error().message(), HasSubstr("f16, expected bf16 or f32"));
  options = f32_options();
  options.max_tokens = 0;
  EXPECT_THAT(try_load(tiny, options).error().message(), HasSubstr("max_tokens is 0"));
  options = f32_options();
  options.backend = "no_such_backend";
  EXPECT_THAT(try_load(tiny, options).error().message(), HasSubstr("no_such_backend"));
}

TEST_F(ModelErrors, CallsBeyondTheLimitsNameBothNumbers) {
  const Model model = load(TinyModel{TinyConfig{}});
  EXPECT_THAT(model.new_sequence(161).error().message(),
              HasSubstr("161 positions, expected 1 to 160"));
  EXPECT_THAT(model.new_sequence(0).error().message(), HasSubstr("0 positions"));
  Sequence sequence = *model.new_sequence(10);
  const auto error = [&](std::vector<std::int32_t> ids) {
    const auto logits = model.forward(sequence, ids, Model::Logits::last_only);
    return logits ? std::string("none") : logits.error().message();
  };
  EXPECT_THAT(error({1, 48}), HasSubstr("token 1 of 2 has id 48, expected 0 to 47"));
  EXPECT_THAT(error({-1}), HasSubstr("has id -1"));
  EXPECT_THAT(error({}), HasSubstr("no token ids"));
  EXPECT_THAT(error(std::vector<std::int32_t>(11, 1)),
              HasSubstr("11 tokens more than 0 of at most 10"));
  EXPECT_EQ(sequence.length(), 0);
  EXPECT_EQ(error(std::vector<std::int32_t>(10, 1)), "none");
  EXPECT_THAT(error({1}), HasSubstr("1 tokens more than 10 of at most 10"));
}

TEST_F(ModelErrors, ASequenceOfAnotherModelIsRefused) {
  const Model a = load(TinyModel{TinyConfig{}});
  const Model b = load(TinyModel{TinyConfig{}});
  Sequence sequence = *a.new_sequence(10);
  const std::vector<std::int32_t> ids = {1};
  const auto logits = b.forward(sequence, ids, Model::Logits::all);
  ASSERT_FALSE(logits);
  EXPECT_THAT(logits.error().message(), HasSubstr("another model"));
}

}  // namespace
}  // namespace fewbit
