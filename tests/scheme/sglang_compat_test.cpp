// SPDX-License-Identifier: Apache-2.0
#include "scheme/sglang_compat.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fewbit::sglang {
namespace {

const std::vector<std::string> one_expert = {"model.layers.0.mlp.experts.0.gate_proj"};

TEST(SglangIsLayerSkipped, JudgesFusedModulesByTheirParts) {
  const std::vector<std::string> some = {"a.q_proj"};
  const auto partly = is_layer_skipped("a.qkv_proj", some, {});
  ASSERT_FALSE(partly);
  EXPECT_EQ(partly.error().code, ErrorCode::inconsistent);
  EXPECT_EQ(partly.error().where, "a.qkv_proj");
  EXPECT_EQ(partly.error().what, "q_proj listed and k_proj, v_proj not, expected all parts alike");
  EXPECT_FALSE(is_layer_skipped("a.b", some, {{"b", {}}}));
}

// Kept on purpose; docs/differences.md says what fewbit does instead.
TEST(SglangIsLayerSkipped, OneExpertSkipsThemAll) {
  EXPECT_EQ(*is_layer_skipped("model.layers.0.mlp.experts", one_expert, {}), true);
  EXPECT_EQ(*is_layer_skipped("model.layers.1.mlp.experts", one_expert, {}), false);
}

Json::Object dynamic_of(const std::string& text) { return *Json::parse(text, "test")->as_object(); }

TEST(SglangDynamic, TheFirstMatchEndsTheSearch) {
  const Json::Object rules = dynamic_of(R"({"+:.*up": {"bits": 8}, "+:.*": {"group_size": 32}})");
  EXPECT_EQ(get_dynamic_override(rules, "a.up", "group_size", 128)->as_int64(), 128);
  EXPECT_EQ(get_dynamic_override(rules, "a.down", "group_size", 128)->as_int64(), 32);
  EXPECT_FALSE(get_dynamic_override(dynamic_of(R"({"(": {}})"), "a", "bits", 4));
}

TEST(SglangDynamic, IsOfferedOnTexts) {
  const char* const rules = R"({"+:.*up": {"bits": 8}, "-:.*down": {}})";
  EXPECT_EQ(*get_dynamic_override(rules, "a.up", "bits", "4"), "8");
  EXPECT_EQ(*get_dynamic_override(rules, "a.up", std::nullopt, "null"), R"({"bits":8})");
  EXPECT_EQ(*get_dynamic_override(rules, "a.down", "bits", "4"), "false");
  EXPECT_EQ(*get_dynamic_override(rules, "a.gate", "bits", "4"), "4");
  EXPECT_EQ(get_dynamic_override("[]", "a", "bits", "4").error().message(),
            "dynamic: a JSON array, expected an object of rules");
  EXPECT_EQ(get_dynamic_override("{", "a", "bits", "4").error().code, ErrorCode::corrupt);
}

TEST(SglangOverrideConfig, TakesValuesOfTheFieldsKindOnly) {
  GptqConfig config;
  config.dynamic = std::string(
      R"({".*a$": {"bits": 8, "group_size": 32, "desc_act": true}, ".*b$": {"bits": "8"},
          ".*c$": {"bits": 5}, "-:.*d$": {}, ".*e$": {"bits": 3}})");
  const auto a = override_config(config, "x.a");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->bits, 8);
  EXPECT_EQ(a->group_size, 32);
  EXPECT_TRUE(a->desc_act);
  EXPECT_EQ(a->pack_factor, 4);
  EXPECT_EQ(override_config(config, "x.b")->bits, 4);
  EXPECT_EQ(override_config(config, "x.c").error().what, "bits 5, expected 2, 3, 4 or 8");
  EXPECT_EQ(override_config(config, "x.d")->bits, 4);
  EXPECT_EQ(override_config(config, "x.e")->pack_factor, 10);
}

TEST(SglangOverrideConfig, MarlinNeedsAKnownType) {
  GptqConfig config;
  config.method = "gptq_marlin";
  config.dynamic = std::string(R"({".*a$": {"bits": 8}, ".*b$": {"sym": false}})");
  EXPECT_EQ(override_config(config, "x.a")->quant_type, "uint8b128");
  EXPECT_EQ(override_config(config, "x")->quant_type, "uint4b8");
  EXPECT_EQ(override_config(config, "x.b").error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace fewbit::sglang
