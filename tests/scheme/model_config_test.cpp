// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "fewbit/scheme.hpp"
#include "scheme/small_checkpoint.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A checkpoint with one tensor and this config.
Result<ModelConfig> read(const std::string& config, const std::string& generation = "") {
  SmallCheckpoint small;
  small.add("a.weight", DType::bf16, {1, 1});
  if (!config.empty()) small.file("config.json", config);
  if (!generation.empty()) small.file("generation_config.json", generation);
  return read_model_config(small.open());
}

// The small model's config with one key replaced (or added).
std::string with(const std::string& key, const std::string& value) {
  std::string config = SmallCheckpoint::config("");
  const std::size_t at = config.find("\"" + key + "\"");
  if (at == std::string::npos) return SmallCheckpoint::config("\"" + key + "\": " + value + ",");
  const std::size_t begin = config.find(':', at) + 1;
  const std::size_t end = config.find_first_of(",}", begin);
  return config.replace(begin, end - begin, " " + value);
}

TEST(ModelConfig, ReadsAQwen3Moe) {
  const auto config = read(SmallCheckpoint::config(""));
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->model_type, "qwen3_moe");
  EXPECT_EQ(config->architecture, "Qwen3MoeForCausalLM");
  EXPECT_EQ(config->hidden_size, 32);
  EXPECT_EQ(config->intermediate_size, 48);
  EXPECT_EQ(config->moe_intermediate_size, 16);
  EXPECT_EQ(config->num_layers, 1);
  EXPECT_EQ(config->num_heads, 2);
  EXPECT_EQ(config->num_kv_heads, 1);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->vocab_size, 64);
  EXPECT_EQ(config->max_positions, 128);
  EXPECT_EQ(config->num_experts, 2);
  EXPECT_EQ(config->router.top_k, 1);
  EXPECT_TRUE(config->router.renormalize);
  EXPECT_EQ(config->router.score, Score::softmax);
  EXPECT_EQ(config->activation, ActivationParams{});
  EXPECT_THAT(config->moe_layer, ElementsAre(true));
  EXPECT_EQ(config->rms_norm_eps, 1e-6);
  EXPECT_EQ(config->rope_theta, 10000.0);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_EQ(config->dtype, DType::bf16);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(3));
}

TEST(ModelConfig, DefaultsAreTheFamilys) {
  std::string text = SmallCheckpoint::config("");
  const std::string given = R"("norm_topk_prob": true,)";
  text.erase(text.find(given), given.size());
  EXPECT_FALSE(read(text)->router.renormalize);
  EXPECT_EQ(read(with("head_dim", "null"))->head_dim, 16);  // hidden_size / heads
}

TEST(ModelConfig, FindsKeysInsideATextConfig) {
  const std::string inner = SmallCheckpoint::config("");
  const auto config = read(R"({"model_type": "qwen3_moe", "text_config": )" + inner + "}");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->hidden_size, 32);
}

TEST(ModelConfig, SparseLayersFollowStepAndList) {
  std::string text = with("num_hidden_layers", "6");
  text.insert(1, R"("decoder_sparse_step": 2, "mlp_only_layers": [3],)");
  EXPECT_THAT(read(text)->moe_layer, ElementsAre(false, true, false, false, false, true));
}

// The list is given once a layer at most, so reading it takes no more than one pass.
TEST(ModelConfig, MoreDenseLayersThanLayersAreRefused) {
  std::string list = "\"mlp_only_layers\": [0";
  for (int i = 0; i < 300000; ++i) list += ",0";
  SmallCheckpoint small = SmallCheckpoint::modelopt();
  small.file("config.json", SmallCheckpoint::config(list + "],"));
  const auto config = read_model_config(small.open());
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().what, HasSubstr("300001 entries for 1 layers"));
}

TEST(ModelConfig, EosTokensComeFromBothFiles) {
  const auto config = read(with("eos_token_id", "7"), R"({"eos_token_id": [9, 7]})");
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_THAT(config->eos_token_ids, ElementsAre(7, 9));
}

TEST(ModelConfig, TakesTheNewerRopeParameters) {
  std::string text = with("rope_theta", "null");
  text.insert(1, R"("rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},)");
  const auto config = read(text);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->rope_theta, 1e6);
}

TEST(ModelConfig, AMissingFileIsNamed) {
  const auto config = read("");
  ASSERT_FALSE(config);
  EXPECT_EQ(config.error().code, ErrorCode::not_found);
  EXPECT_THAT(config.error().where, HasSubstr("config.json"));
}

struct Refused {
  const char* key;
  const char* value;
  ErrorCode code;
  const char* says;  // part of the message
};
std::ostream& operator<<(std::ostream& out, const Refused& one) {
  return out << one.key << " = " << one.value;
}

class RefusedConfig : public testing::TestWithParam<Refused> {};

TEST_P(RefusedConfig, NamesKeyAndValue) {
  const auto config = read(with(GetParam().key, GetParam().value));
  ASSERT_FALSE(config);
  EXPECT_STREQ(error_code_name(config.error().code), error_code_name(GetParam().code))
      << config.error().message();
  EXPECT_THAT(config.error().what, HasSubstr(GetParam().says));
  EXPECT_THAT(config.error().where, HasSubstr("config.json"));
}

INSTANTIATE_TEST_SUITE_P(
    Keys, RefusedConfig,
    testing::Values(
        // what fewbit can't honour
        Refused{"rope_scaling", R"({"rope_type": "yarn", "factor": 4.0})", ErrorCode::unsupported,
                "rope_scaling is {\"rope_type\":\"yarn\""},
        Refused{"rope_parameters", R"({"rope_type": "llama3", "rope_theta": 10000.0})",
                ErrorCode::unsupported, "llama3"},
        Refused{"rope_parameters", R"({"rope_type": "default", "rope_theta": 5.0})",
                ErrorCode::inconsistent, "rope_theta is 5"},
        Refused{"attention_bias", "true", ErrorCode::unsupported, "attention_bias is true"},
        Refused{"use_sliding_window", "true", ErrorCode::unsupported, "use_sliding_window is true"},
        Refused{"sliding_window", "64", ErrorCode::unsupported, "sliding_window is 64"},
        Refused{"layer_types", R"(["sliding_attention"])", ErrorCode::unsupported,
                "sliding_attention"},
        Refused{"partial_rotary_factor", "0.5", ErrorCode::unsupported,
                "partial_rotary_factor is 0.5"},
        Refused{"n_shared_experts", "1", ErrorCode::unsupported, "n_shared_experts is 1"},
        Refused{"kv_lora_rank", "512", ErrorCode::unsupported, "kv_lora_rank is 512"},
        Refused{"final_logit_softcapping", "30.0", ErrorCode::unsupported, "30.0"},
        Refused{"scoring_func", "\"sigmoid\"", ErrorCode::unsupported, "sigmoid"},
        Refused{"moe_router_activation_func", "\"sigmoid\"", ErrorCode::unsupported, "sigmoid"},
        // what other families have
        Refused{"routed_scaling_factor", "2.5", ErrorCode::unsupported,
                "routed_scaling_factor is 2.5, expected 1: model_type qwen3_moe does not apply it"},
        Refused{"route_scale", "2.5", ErrorCode::unsupported, "route_scale is 2.5"},
        Refused{"n_group", "2", ErrorCode::unsupported, "n_group is 2, expected 1"},
        Refused{"topk_group", "\"1\"", ErrorCode::unsupported, "topk_group is \"1\", expected 1"},
        Refused{"first_k_dense_replace", "1", ErrorCode::unsupported, "expected 0"},
        Refused{"topk_method", "\"noaux_tc\"", ErrorCode::unsupported, "noaux_tc"},
        Refused{"swiglu_limit", "7.0", ErrorCode::unsupported, "silu does not apply it"},
        Refused{"swiglu_alpha", "1.702", ErrorCode::unsupported, "silu does not apply it"},
        Refused{"attention_multiplier", "0.5", ErrorCode::unsupported, "expected 0.25"},
        Refused{"use_qk_norm", "false", ErrorCode::unsupported, "use_qk_norm is false"},
        Refused{"rotary_dim", "8", ErrorCode::unsupported, "expected 16"},
        Refused{"use_grouped_topk", "true", ErrorCode::unsupported, "use_grouped_topk is true"},
        Refused{"layer_norm_eps", "1e-5", ErrorCode::unsupported, "layer_norm_eps is 1e-"},
        // one thing under two names
        Refused{"num_local_experts", "4", ErrorCode::inconsistent,
                "num_local_experts is 4, but num_experts is 2"},
        Refused{"moe_topk", "2", ErrorCode::inconsistent,
                "num_experts_per_tok is 1, but moe_topk is 2"},
        Refused{"moe_renormalize", "false", ErrorCode::inconsistent, "moe_renormalize is false"},
        Refused{"hidden_act", "\"mish\"", ErrorCode::unsupported, "mish"},
        Refused{"model_type", "\"gpt_neo\"", ErrorCode::unsupported, "gpt_neo"},
        Refused{"torch_dtype", "\"float8\"", ErrorCode::unsupported, "float8"},
        // wrong kinds and ranges
        Refused{"hidden_size", "\"32\"", ErrorCode::corrupt, "hidden_size is \"32\""},
        Refused{"hidden_size", "-32", ErrorCode::corrupt, "hidden_size is -32"},
        Refused{"hidden_size", "32.5", ErrorCode::corrupt, "hidden_size is 32.5"},
        Refused{"hidden_size", "null", ErrorCode::corrupt, "hidden_size is missing"},
        Refused{"max_position_embeddings", "4294967296", ErrorCode::corrupt,
                "from 1 to 2147483647"},
        Refused{"num_hidden_layers", "99999999999", ErrorCode::corrupt, "from 1 to 65536"},
        Refused{"moe_intermediate_size", "0", ErrorCode::corrupt, "moe_intermediate_size is 0"},
        Refused{"norm_topk_prob", "1", ErrorCode::corrupt, "norm_topk_prob is 1"},
        Refused{"mlp_only_layers", "[\"0\"]", ErrorCode::corrupt, "mlp_only_layers"},
        Refused{"eos_token_id", "64", ErrorCode::corrupt, "from 0 to 63"},
        Refused{"architectures", "[]", ErrorCode::corrupt, "architectures is []"},
        // numbers that do not fit each other
        Refused{"num_experts_per_tok", "3", ErrorCode::inconsistent,
                "num_experts_per_tok 3 is more than num_experts 2"},
        Refused{"num_key_value_heads", "3", ErrorCode::inconsistent, "2 is no multiple of"},
        Refused{"head_dim", "15", ErrorCode::inconsistent, "head_dim is 15"},
        Refused{"mlp_only_layers", "[4]", ErrorCode::inconsistent, "layer 4, expected 0 to 0"},
        Refused{"rms_norm_eps", "0", ErrorCode::inconsistent, "rms_norm_eps is 0"},
        Refused{"rope_theta", "0.5", ErrorCode::corrupt, "rope_theta is 0.5"}));

TEST(ModelConfig, KeysOfOneFamilyAreForeignToAnother) {
  const auto refused = [](std::string text, const std::string& family, const std::string& key,
                          const std::string& value) {
    text.replace(text.find("qwen3_moe"), 9, family);
    text.insert(1, "\"" + key + "\": " + value + ",");
    const auto config = read(text);
    return config ? std::string() : config.error().what;
  };
  const std::string same = with("moe_intermediate_size", "48");
  EXPECT_EQ(refused(same, "mixtral", "use_qk_norm", "false"), "");
  EXPECT_THAT(refused(same, "mixtral", "use_qk_norm", "true"), HasSubstr("mixtral does not apply"));
  EXPECT_THAT(refused(same, "olmoe", "decoder_sparse_step", "2"), HasSubstr("expected 1"));
  EXPECT_THAT(refused(same, "olmoe", "mlp_only_layers", "[0]"), HasSubstr("an empty list"));
  EXPECT_THAT(refused(same, "mixtral", "route_norm", "false"), HasSubstr("route_norm is false"));
  EXPECT_THAT(refused(with("moe_intermediate_size", "16"), "olmoe", "use_qk_norm", "true"),
              HasSubstr("moe_intermediate_size is 16, expected 48"));
}

TEST(ModelConfig, NeutralValuesOfRefusableKeysAreAccepted) {
  for (const auto& [key, value] : {std::pair{"rope_scaling", "null"},
                                   {"attention_bias", "false"},
                                   {"sliding_window", "4096"},
                                   {"n_shared_experts", "0"},
                                   {"partial_rotary_factor", "1.0"},
                                   {"routed_scaling_factor", "1.0"},
                                   {"num_local_experts", "2"},
                                   {"n_group", "1"},
                                   {"topk_group", "1"},
                                   {"attention_multiplier", "0.25"},
                                   {"use_qk_norm", "true"},
                                   {"swiglu_limit", "null"},
                                   {"first_k_dense_replace", "0"},
                                   {"topk_method", "\"greedy\""},
                                   {"layer_types", R"(["full_attention"])"},
                                   {"scoring_func", "\"softmax\""}}) {
    const auto config = read(with(key, value));
    EXPECT_TRUE(config) << config.error().message();
  }
}

}  // namespace
}  // namespace fewbit
