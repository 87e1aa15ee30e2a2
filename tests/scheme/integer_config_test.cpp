// SPDX-License-Identifier: Apache-2.0
// Which modules configs of GPTQ and AutoRound leave as they are.
#include "scheme/integer_config.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace fewbit {
namespace {

// Whether a config with these members quantizes a module.
bool quantizes(Producer producer, const std::string& members, const std::string& name) {
  auto block = Json::parse("{\"bits\": 4, " + members + "}", "config.json");
  EXPECT_TRUE(block) << block.error().message();
  Declaration declaration;
  declaration.producer = producer;
  declaration.file = std::make_shared<const Json>(*std::move(block));
  declaration.block = declaration.file.get();
  const auto config = read_integer_config(declaration);
  EXPECT_TRUE(config);
  Module module;
  module.name = name;
  return exclusion_of(*config, module).why.empty();
}

bool in_blocks(const std::string& blocks, const std::string& name) {
  return quantizes(Producer::auto_round, "\"block_name_to_quantize\": " + blocks, name);
}

// A list stands for what its names have in common, in whole components; a name for itself.
TEST(AutoRoundBlocks, AListOfNamesStandsForTheirCommonParent) {
  const std::string two = R"([["model.layers.1", "model.layers.10"]])";
  for (const char* name : {"model.layers.0.mlp.up_proj", "model.layers.23.self_attn.q_proj"}) {
    EXPECT_TRUE(in_blocks(two, name)) << name;
    EXPECT_FALSE(in_blocks(R"(["model.layers.1", "model.layers.10"])", name)) << name;
    EXPECT_FALSE(in_blocks(R"([["model.layers.1"]])", name)) << name;
  }
  EXPECT_FALSE(in_blocks(two, "model.visual.blocks.1.attn.qkv"));
  EXPECT_FALSE(in_blocks(two, "lm_head"));
  // "layers.1" is no parent of "layers.10".
  EXPECT_FALSE(in_blocks(R"([["a.layers.1", "a.layers.1.mlp"]])", "a.layers.10.mlp"));
  EXPECT_TRUE(in_blocks(R"([["a.layers.1", "a.layers.1.mlp"]])", "a.layers.1.self_attn"));
}

TEST(AutoRoundBlocks, EveryListCountsAndOneWithoutAParentAsItIs) {
  const std::string towers =
      R"([["model.visual.blocks.0", "model.visual.blocks.1"], ["model.layers.0", "model.layers.1"]])";
  EXPECT_TRUE(in_blocks(towers, "model.layers.7.mlp.up_proj"));
  EXPECT_TRUE(in_blocks(towers, "model.visual.blocks.7.attn.qkv"));
  EXPECT_FALSE(in_blocks(towers, "model.audio.layers.0.attn"));
  const std::string apart = R"([["visual.blocks.0", "layers.1"]])";
  EXPECT_TRUE(in_blocks(apart, "layers.1.mlp.up_proj"));
  EXPECT_FALSE(in_blocks(apart, "layers.2.mlp.up_proj"));
}

TEST(ExcludedModules, CountUnderEveryNameOfTheList) {
  for (const Producer producer : {Producer::gptq, Producer::awq, Producer::auto_round}) {
    for (const char* key : {"ignore", "exclude_modules", "exclude", "modules_to_not_convert",
                            "ignored_layers", "llm_int8_skip_modules"}) {
      const std::string list = "\"" + std::string(key) + R"(": ["model.layers.1.mlp.up_proj"])";
      EXPECT_FALSE(quantizes(producer, list, "model.layers.1.mlp.up_proj")) << key;
      EXPECT_TRUE(quantizes(producer, list, "model.layers.2.mlp.up_proj")) << key;
    }
  }
}

TEST(ModulesInBlock, KnowFusedNamesAndTheirParts) {
  const auto quantized = [](const std::string& names, const std::string& module) {
    return quantizes(Producer::gptq, "\"modules_in_block_to_quantize\": " + names, module);
  };
  const std::string parts = R"([["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]])";
  EXPECT_TRUE(quantized(parts, "model.layers.0.self_attn.qkv_proj"));
  EXPECT_FALSE(quantized(R"([["self_attn.q_proj"]])", "model.layers.0.self_attn.qkv_proj"));
  EXPECT_TRUE(quantized(R"([["self_attn.qkv_proj"]])", "model.layers.0.self_attn.v_proj"));
  EXPECT_FALSE(quantized(parts, "model.layers.0.mlp.up_proj"));
}

}  // namespace
}  // namespace fewbit
