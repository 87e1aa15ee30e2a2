// SPDX-License-Identifier: Apache-2.0
#include "scheme/layer_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<ModelConfig> read(SmallCheckpoint small, const std::string& config) {
  small.file("config.json", config);
  const Checkpoint checkpoint = small.open();
  return read_layer_config(checkpoint, *identify(checkpoint));
}

// A family that nothing here runs.
constexpr const char* unknown_family = R"({"model_type": "brand_new_moe", "hidden_size": 32,
    "num_hidden_layers": 1, "n_routed_experts": 2, "moe_intermediate_size": 16,
    "num_experts_per_tok": 1, "hidden_act": "silu", "n_group": 2, "topk_group": 1,
    "scoring_func": "sigmoid", "swiglu_limit": 5.0, "max_position_embeddings": 77})";

TEST(LayerConfig, ReadsWhatConcernsExpertsOfAnyFamily) {
  const auto config = read(SmallCheckpoint::modelopt(), unknown_family);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->num_experts, 2);
  EXPECT_EQ(config->moe_intermediate_size, 16);
  EXPECT_EQ(config->max_positions, 77);
  EXPECT_EQ(config->router.score, Score::sigmoid);
  EXPECT_EQ(config->router.num_groups, 2);
  EXPECT_EQ(config->router.top_groups, 1);
  EXPECT_TRUE(config->router.renormalize);
  EXPECT_EQ(config->activation.limit, 5.0F);
  EXPECT_THAT(config->moe_layer, ElementsAre(true));
}

TEST(LayerConfig, ACorrectionBiasMeansSigmoidScores) {
  const std::string config = R"({"model_type": "deepseek_v3", "hidden_size": 32,
      "num_hidden_layers": 3, "num_experts": 2, "num_experts_per_tok": 1})";
  EXPECT_EQ(read(SmallCheckpoint::modelopt(), config)->router.score, Score::softmax);
  SmallCheckpoint biased = SmallCheckpoint::modelopt();
  biased.add_f32("model.layers.0.mlp.gate.e_score_correction_bias", {2}, {0.0F, 1.0F});
  const auto read_biased = read(biased, config);
  ASSERT_TRUE(read_biased) << read_biased.error().message();
  EXPECT_EQ(read_biased->router.score, Score::sigmoid);
  EXPECT_THAT(read_biased->moe_layer, ElementsAre(true, false, false));
}

TEST(LayerConfig, GptOssHasAnotherFunctionThanItsConfigNames) {
  const auto config = read(SmallCheckpoint::modelopt(), R"({"model_type": "gpt_oss",
      "hidden_size": 32, "num_hidden_layers": 1, "num_local_experts": 2, "num_experts_per_tok": 1,
      "hidden_act": "silu", "swiglu_limit": 7.0})");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->activation, (ActivationParams{Activation::swigluoai, 1.702F, 1.0F, 7.0F}));
}

TEST(LayerConfig, ReadsSizesWhereverAFamilyStatesThem) {
  for (const std::string text : {
           R"({"hidden_size": 32, "num_layers": 2, "n_routed_experts": 2, "moe_topk": [1, 1],
               "moe_intermediate_size": [16, 16]})",
           R"({"d_model": 32, "n_layers": 2, "moe_intermediate_size": 16,
               "ffn_config": {"moe_num_experts": 2, "moe_top_k": 1}})",
           R"({"thinker_config": {"text_config": {"hidden_size": 32, "num_hidden_layers": 2,
               "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16}}})",
       }) {
    const auto config = read(SmallCheckpoint::modelopt(), text);
    ASSERT_TRUE(config) << config.error().message();
    EXPECT_EQ(config->hidden_size, 32);
    EXPECT_EQ(config->num_layers, 2);
    EXPECT_EQ(config->num_experts, 2);
    EXPECT_EQ(config->moe_intermediate_size, 16);
    EXPECT_EQ(config->router.top_k, 1);
  }
  const auto mixed = read(SmallCheckpoint::modelopt(), R"({"hidden_size": 32, "num_layers": 2,
      "num_experts": 2, "moe_topk": 1, "moe_intermediate_size": [16, 8]})");
  ASSERT_FALSE(mixed);
  EXPECT_THAT(mixed.error().message(), HasSubstr("moe_intermediate_size is [16,8], expected"));
}

TEST(LayerConfig, ADenseModelHasNoMoeLayer) {
  SmallCheckpoint dense;
  dense.add("model.layers.0.mlp.up_proj.weight", DType::bf16, {1, 1});
  const auto config = read(dense, R"({"hidden_size": 32, "num_hidden_layers": 1})");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::unsupported);
  EXPECT_THAT(config.error().message(), HasSubstr("the model has no MoE layer"));
}

TEST(LayerConfig, NamesWhatIsMissingOrUnknown) {
  const auto message = [](const std::string& config) {
    const auto result = read(SmallCheckpoint::modelopt(), config);
    return result ? "no error" : result.error().message();
  };
  EXPECT_THAT(message("{}"), HasSubstr("hidden_size"));
  EXPECT_THAT(message(R"({"hidden_size": 32, "num_hidden_layers": 100000})"),
              HasSubstr("num_hidden_layers"));
  EXPECT_THAT(message(R"({"hidden_size": 32, "num_hidden_layers": 1, "num_experts": 2,
      "num_experts_per_tok": 1, "scoring_func": "tanh"})"),
              HasSubstr("scoring_func \"tanh\", expected softmax, sigmoid or sqrtsoftplus"));
  EXPECT_THAT(message(R"({"hidden_size": 32, "num_hidden_layers": 1, "num_experts": 2,
      "num_experts_per_tok": 1, "hidden_act": "tanh"})"),
              HasSubstr("tanh"));
  SmallCheckpoint bare;
  bare.add("a.weight", DType::bf16, {1, 1});
  const Checkpoint checkpoint = bare.open();
  EXPECT_EQ(read_layer_config(checkpoint, Identified{}).error().code, ErrorCode::not_found);
}

}  // namespace
}  // namespace fewbit
