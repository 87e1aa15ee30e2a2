// SPDX-License-Identifier: Apache-2.0
#include "scheme/hybrid_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::optional<HybridConfig> config_of(const std::string& file, const std::string& text) {
  SmallCheckpoint small;
  small.add_bf16("model.norm.weight", {32}, {1.0F}).file(file, text);
  auto config = read_hybrid_config(small.open());
  EXPECT_TRUE(config) << config.error().message();
  return *std::move(config);
}

TEST(HybridConfig, TheMapMayStandInAnyOfItsPlaces) {
  const std::string keys = R"("hybrid_bit_map": {"3": [4, 3]}, "kept_format": "mxfp4_e8m0k32")";
  for (const auto& [file, text] : std::vector<std::pair<std::string, std::string>>{
           {"config.json", "{" + keys + "}"},
           {"config.json", R"({"quantization": {)" + keys + "}}"},
           {"config.json", R"({"quantization_config": {)" + keys + "}}"},
           {"config.json", R"({"text_config": {"quantization_config": {)" + keys + "}}}"},
           {"hf_quant_config.json", R"({"quantization": {)" + keys + "}}"},
       }) {
    const auto config = config_of(file, text);
    ASSERT_TRUE(config) << text;
    EXPECT_TRUE(config->has_map);
    EXPECT_THAT(config->bits.at(3), ElementsAre(4, 3));
    EXPECT_EQ(config->kept_format, "mxfp4_e8m0k32");
    EXPECT_EQ(config->malformed, "");
    EXPECT_EQ(config->where, file);
  }
  EXPECT_FALSE(config_of("config.json", R"({"model_type": "x"})"));
}

TEST(HybridConfig, WhatIsNoListOfThreesAndFoursIsSaid) {
  for (const auto& [map, says] : std::vector<std::pair<std::string, std::string>>{
           {R"({"0": [4, 2]})", "entry \"0\""},
           {R"({"0": [4, "3"]})", "entry \"0\""},
           {R"({"0": 3})", "entry \"0\""},
           {R"({"layer": [3]})", "entry \"layer\""},
           {R"({"-1": [3]})", "entry \"-1\""},
           {R"([[3]])", "hybrid_bit_map is array"},
       }) {
    const auto config = config_of("config.json", R"({"hybrid_bit_map": )" + map + "}");
    ASSERT_TRUE(config) << map;
    EXPECT_THAT(config->malformed, HasSubstr(says)) << map;
  }
  EXPECT_FALSE(config_of("config.json", R"({"kept_format": "x"})")->has_map);
}

}  // namespace
}  // namespace fewbit
