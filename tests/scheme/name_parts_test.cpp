// SPDX-License-Identifier: Apache-2.0
#include "scheme/name_parts.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <tuple>

namespace fewbit {
namespace {

using Split = std::pair<std::string, std::string>;

Split split(std::string_view name) {
  const TensorName out = split_tensor_name(name);
  return {out.module, out.suffix};
}

TEST(TensorName, EndsInTheLongestKnownSuffix) {
  EXPECT_EQ(split("a.up_proj.weight"), Split("a.up_proj", "weight"));
  EXPECT_EQ(split("a.up_proj.weight_scale"), Split("a.up_proj", "weight_scale"));
  EXPECT_EQ(split("a.up_proj.weight_scale_2"), Split("a.up_proj", "weight_scale_2"));
  EXPECT_EQ(split("a.up_proj.weight_scale_inv"), Split("a.up_proj", "weight_scale_inv"));
  EXPECT_EQ(split("a.q_proj.weight.absmax"), Split("a.q_proj", "weight.absmax"));
  EXPECT_EQ(split("a.k_proj.k_scale"), Split("a.k_proj", "k_scale"));
}

TEST(TensorName, FusedExpertsHaveNoSuffixOrAnUnderscore) {
  EXPECT_EQ(split("mlp.experts.gate_up_proj"), Split("mlp.experts.gate_up_proj", "weight"));
  EXPECT_EQ(split("mlp.experts.gate_up_proj_weight_scale_2"),
            Split("mlp.experts.gate_up_proj", "weight_scale_2"));
  EXPECT_EQ(split("mlp.experts.down_proj_blocks"), Split("mlp.experts.down_proj", "blocks"));
  EXPECT_EQ(split("mlp.experts.down_proj_bias"), Split("mlp.experts.down_proj", "bias"));
}

TEST(TensorName, ScalesOfActivationsMayFollowAnUnderscore) {
  EXPECT_EQ(split("self_attn.q_proj_activation_scale"),
            Split("self_attn.q_proj", "activation_scale"));
  EXPECT_EQ(split("feed_forward.w2_qscale_act"), Split("feed_forward.w2", "qscale_act"));
  EXPECT_EQ(split("experts.gate_up_proj_activation_scale"),
            Split("experts.gate_up_proj", "activation_scale"));
  EXPECT_EQ(split("self_attn.attn_activation_scale"),
            Split("self_attn.attn_activation_scale", "weight"));
}

TEST(TensorName, AnUnknownNameIsAModuleOfItsOwn) {
  EXPECT_EQ(split("mlp.gate.e_score_correction_bias"),
            Split("mlp.gate.e_score_correction_bias", "weight"));
  EXPECT_EQ(split("weight"), Split("weight", "weight"));
  EXPECT_EQ(split(".weight"), Split(".weight", "weight"));
}

TEST(TensorName, WithoutNumbersIsOneForAllLayersAndExperts) {
  EXPECT_EQ(without_numbers("model.layers.3.mlp.experts.12.w1"), "model.layers.#.mlp.experts.#.w1");
  EXPECT_EQ(without_numbers("layers.3"), "layers.#");
  EXPECT_EQ(without_numbers("fc1.w3"), "fc1.w3");
  EXPECT_EQ(last_component("mlp.up_proj"), "up_proj");
  EXPECT_EQ(last_component("lm_head"), "lm_head");
}

struct RoleCase {
  const char* module;
  Role role;
  int layer;
  int expert;
};
std::ostream& operator<<(std::ostream& out, const RoleCase& one) { return out << one.module; }

class FindRole : public testing::TestWithParam<RoleCase> {};

TEST_P(FindRole, FromTheName) {
  const ModuleRole found = find_role(GetParam().module);
  EXPECT_STREQ(role_name(found.role), role_name(GetParam().role));
  EXPECT_EQ(found.layer, GetParam().layer);
  EXPECT_EQ(found.expert, GetParam().expert);
}

INSTANTIATE_TEST_SUITE_P(
    Families, FindRole,
    testing::Values(
        // the three that look alike
        RoleCase{"model.layers.3.mlp.gate", Role::router, 3, -1},
        RoleCase{"model.layers.3.mlp.gate_proj", Role::gate_proj, 3, -1},
        RoleCase{"model.layers.3.mlp.shared_expert_gate", Role::shared_expert_gate, 3, -1},
        RoleCase{"model.layers.3.mlp.experts.12.gate_proj", Role::gate_proj, 3, 12},
        RoleCase{"model.layers.3.mlp.shared_expert.gate_proj", Role::shared_gate_proj, 3, -1},
        RoleCase{"model.layers.3.mlp.shared_experts.down_proj", Role::shared_down_proj, 3, -1},
        RoleCase{"model.layers.3.mlp.gate.e_score_correction_bias", Role::router_bias, 3, -1},
        // prefixes of the layers
        RoleCase{"transformer.layers.3.mlp.gate", Role::router, 3, -1},
        RoleCase{"model.language_model.layers.3.mlp.gate", Role::router, 3, -1},
        RoleCase{"decoder.layers.3.self_attn.k_proj", Role::k_proj, 3, -1},
        RoleCase{"backbone.layers.3.mixer.q_proj", Role::q_proj, 3, -1},
        RoleCase{"transformer.h.3.mlp.up_proj", Role::up_proj, 3, -1},
        RoleCase{"transformer.h.3.mlp.w2", Role::other, 3, -1},
        RoleCase{"transformer.blocks.3.ffn.router.layer", Role::router, 3, -1},
        RoleCase{"h.3.mlp.up_proj", Role::up_proj, 3, -1},
        RoleCase{"visual.blocks.3.mlp.up_proj", Role::other, -1, -1},
        // Mixtral, MiniMax, Kimi
        RoleCase{"model.layers.0.block_sparse_moe.gate", Role::router, 0, -1},
        RoleCase{"model.layers.0.block_sparse_moe.experts.7.w1", Role::gate_proj, 0, 7},
        RoleCase{"model.layers.0.block_sparse_moe.experts.7.w2", Role::down_proj, 0, 7},
        RoleCase{"model.layers.0.block_sparse_moe.experts.7.w3", Role::up_proj, 0, 7},
        RoleCase{"model.layers.0.block_sparse_moe.e_score_correction_bias", Role::router_bias, 0,
                 -1},
        RoleCase{"model.layers.0.block_sparse_moe.shared_experts.up_proj", Role::shared_up_proj, 0,
                 -1},
        // DeepSeek-V4, without a prefix
        RoleCase{"layers.5.ffn.gate", Role::router, 5, -1},
        RoleCase{"layers.5.ffn.experts.255.w3", Role::up_proj, 5, 255},
        RoleCase{"layers.5.ffn.shared_experts.w1", Role::shared_gate_proj, 5, -1},
        // gpt-oss, Llama-4, Granite, Qwen3.5: fused
        RoleCase{"model.layers.1.mlp.router", Role::router, 1, -1},
        RoleCase{"model.layers.1.mlp.router.linear", Role::router, 1, -1},
        RoleCase{"model.layers.1.mlp.experts.gate_up_proj", Role::gate_up_proj, 1, all_experts},
        RoleCase{"language_model.model.layers.1.feed_forward.experts.down_proj", Role::down_proj, 1,
                 all_experts},
        RoleCase{"model.layers.1.feed_forward.router", Role::router, 1, -1},
        RoleCase{"model.layers.1.feed_forward.shared_expert.up_proj", Role::shared_up_proj, 1, -1},
        RoleCase{"model.layers.1.feed_forward.gate_proj", Role::gate_proj, 1, -1},
        RoleCase{"model.layers.1.block_sparse_moe.router.layer", Role::router, 1, -1},
        RoleCase{"model.layers.1.block_sparse_moe.input_linear", Role::gate_up_proj, 1,
                 all_experts},
        RoleCase{"model.layers.1.block_sparse_moe.output_linear", Role::down_proj, 1, all_experts},
        RoleCase{"model.layers.1.mlp.experts.down_projs.9", Role::down_proj, 1, 9},
        // Nemotron-H, Laguna, MLX
        RoleCase{"backbone.layers.8.mixer.gate", Role::router, 8, -1},
        RoleCase{"backbone.layers.8.mixer.experts.3.up_proj", Role::up_proj, 8, 3},
        RoleCase{"model.layers.2.mlp.experts.e_score_correction_bias", Role::router_bias, 2, -1},
        RoleCase{"model.layers.2.mlp.switch_mlp.up_proj", Role::up_proj, 2, all_experts},
        // attention, norms, outside
        RoleCase{"model.language_model.layers.4.self_attn.q_proj", Role::q_proj, 4, -1},
        RoleCase{"thinker.model.layers.4.self_attn.o_proj", Role::o_proj, 4, -1},
        RoleCase{"model.layers.4.self_attn.q_norm", Role::norm, 4, -1},
        RoleCase{"model.layers.4.self_attn.kv_a_proj_with_mqa", Role::attention_other, 4, -1},
        RoleCase{"model.layers.4.post_attention_layernorm", Role::norm, 4, -1},
        RoleCase{"model.embed_tokens", Role::embedding, -1, -1},
        RoleCase{"backbone.embeddings", Role::embedding, -1, -1},
        RoleCase{"gpt_neox.embed_in", Role::embedding, -1, -1},
        RoleCase{"embed_out", Role::head, -1, -1},
        RoleCase{"transformer.output_layer", Role::head, -1, -1},
        RoleCase{"bert.encoder.embeddings.LayerNorm", Role::other, -1, -1},
        RoleCase{"blk.3.ffn_latent_down", Role::latent_proj, 3, -1},
        RoleCase{"blk.3.ffn_latent_up", Role::latent_proj, 3, -1},
        RoleCase{"model.norm", Role::norm, -1, -1}, RoleCase{"lm_head", Role::head, -1, -1},
        RoleCase{"mtp.layers.0.mlp.experts.0.up_proj", Role::up_proj, -1, 0},
        RoleCase{"mtp.0.ffn.experts.0.w2", Role::down_proj, -1, 0},
        RoleCase{"mtp.0.ffn.gate", Role::router, -1, -1},
        RoleCase{"mtp.0.attn.wq_a", Role::attention_other, -1, -1},
        RoleCase{"model.mtp.layers.0.self_attn.q_proj", Role::q_proj, -1, -1},
        RoleCase{"model.mtp_layers.0.mlp.shared_experts.up_proj", Role::shared_up_proj, -1, -1},
        RoleCase{"mtp.fc", Role::other, -1, -1}, RoleCase{"mtp.norm", Role::norm, -1, -1},
        RoleCase{"model.visual.layers.0.mlp.gate_proj", Role::other, -1, -1},
        // below a matrix
        RoleCase{"model.layers.0.mlp.experts.7.up_proj.weight.more", Role::other, 0, 7},
        RoleCase{"model.layers.0.mlp.experts.7.up_proj.linear", Role::up_proj, 0, 7},
        RoleCase{"model.layers.0.mlp.experts.up_proj.weight.more", Role::other, 0, -1},
        // numbers that are none
        RoleCase{"model.layers.99999999999.mlp.gate", Role::other, -1, -1},
        RoleCase{"model.layers.-1.mlp.gate", Role::other, -1, -1},
        RoleCase{"", Role::other, -1, -1}));

// Every architecture: its router, its experts, its shared expert, and what stands around them.
INSTANTIATE_TEST_SUITE_P(
    Architectures, FindRole,
    testing::Values(
        // Mixtral, Phi-MoE, MiniMax-Text-01/M1/M2/M3
        RoleCase{"model.layers.2.block_sparse_moe.gate", Role::router, 2, -1},
        RoleCase{"model.layers.2.block_sparse_moe.experts.0.w1", Role::gate_proj, 2, 0},
        RoleCase{"model.layers.2.block_sparse_moe.experts.0.w3", Role::up_proj, 2, 0},
        RoleCase{"model.layers.2.block_sparse_moe.shared_experts.gate_up_proj",
                 Role::shared_gate_up_proj, 2, -1},
        // Qwen2-MoE, Qwen3-MoE, Qwen3-Next, Qwen3.5, OLMoE
        RoleCase{"model.layers.2.mlp.shared_expert.up_proj", Role::shared_up_proj, 2, -1},
        RoleCase{"model.layers.2.mlp.shared_expert.down_proj", Role::shared_down_proj, 2, -1},
        RoleCase{"model.layers.2.mlp.experts.gate_up_proj", Role::gate_up_proj, 2, all_experts},
        RoleCase{"model.layers.2.linear_attn.in_proj_qkvz", Role::attention_other, 2, -1},
        RoleCase{"thinker.model.layers.2.mlp.experts.3.down_proj", Role::down_proj, 2, 3},
        // DeepSeek-V2/V3, Kimi-K2, GLM
        RoleCase{"model.layers.61.mlp.experts.255.up_proj", Role::up_proj, 61, 255},
        RoleCase{"model.layers.3.mlp.shared_experts.gate_proj", Role::shared_gate_proj, 3, -1},
        RoleCase{"model.layers.61.shared_head.head", Role::other, 61, -1},
        RoleCase{"model.layers.61.eh_proj", Role::other, 61, -1},
        RoleCase{"model.layers.61.enorm", Role::norm, 61, -1},
        // DeepSeek-V4
        RoleCase{"layers.0.ffn.gate.tid2eid", Role::other, 0, -1},
        RoleCase{"layers.0.attn.wo_a", Role::attention_other, 0, -1},
        RoleCase{"layers.0.ffn.shared_experts.w2", Role::shared_down_proj, 0, -1},
        // gpt-oss
        RoleCase{"model.layers.0.self_attn.sinks", Role::attention_other, 0, -1},
        // Kimi-Linear, Kimi-K3
        RoleCase{"model.layers.1.block_sparse_moe.gate.e_score_correction_bias", Role::router_bias,
                 1, -1},
        RoleCase{"model.layers.1.block_sparse_moe.routed_expert_down_proj", Role::latent_proj, 1,
                 -1},
        RoleCase{"model.layers.1.block_sparse_moe.routed_expert_up_proj", Role::latent_proj, 1, -1},
        RoleCase{"model.layers.1.block_sparse_moe.routed_expert_norm", Role::norm, 1, -1},
        // Llama-4
        RoleCase{"model.layers.1.feed_forward.experts.gate_up_proj", Role::gate_up_proj, 1,
                 all_experts},
        // Granite-MoE, whole and split
        RoleCase{"model.layers.1.shared_mlp.input_linear", Role::shared_gate_up_proj, 1, -1},
        RoleCase{"model.layers.1.shared_mlp.output_linear", Role::shared_down_proj, 1, -1},
        RoleCase{"model.layers.1.block_sparse_moe.experts.4.gate_proj", Role::gate_proj, 1, 4},
        RoleCase{"model.layers.1.mamba.in_proj", Role::attention_other, 1, -1},
        // Nemotron-H
        RoleCase{"backbone.layers.8.mixer.gate.e_score_correction_bias", Role::router_bias, 8, -1},
        RoleCase{"backbone.layers.8.mixer.shared_experts.up_proj", Role::shared_up_proj, 8, -1},
        RoleCase{"backbone.layers.8.mixer.fc1_latent_proj", Role::latent_proj, 8, -1},
        RoleCase{"backbone.layers.8.mixer.fc2_latent_proj", Role::latent_proj, 8, -1},
        RoleCase{"backbone.layers.8.mixer.q_proj", Role::q_proj, 8, -1},
        RoleCase{"backbone.layers.8.mixer.in_proj", Role::attention_other, 8, -1},
        RoleCase{"backbone.layers.8.mixer.up_proj", Role::up_proj, 8, -1},
        RoleCase{"backbone.layers.8.mixer.A_log", Role::other, 8, -1},
        RoleCase{"backbone.layers.8.norm", Role::norm, 8, -1},
        // Ernie-4.5-MoE
        RoleCase{"model.layers.1.mlp.experts.0.up_gate_proj", Role::gate_up_proj, 1, 0},
        RoleCase{"model.layers.1.mlp.shared_experts.up_gate_proj", Role::shared_gate_up_proj, 1,
                 -1},
        RoleCase{"model.layers.0.mlp.up_gate_proj", Role::gate_up_proj, 0, -1},
        RoleCase{"model.layers.1.mlp.moe_statics.e_score_correction_bias", Role::router_bias, 1,
                 -1},
        // Laguna, Hunyuan
        RoleCase{"model.layers.1.mlp.shared_mlp.gate_proj", Role::shared_gate_proj, 1, -1},
        RoleCase{"model.layers.1.mlp.gate.wg", Role::router, 1, -1},
        // Gemma-4
        RoleCase{"model.layers.1.router.proj", Role::router, 1, -1},
        RoleCase{"model.layers.1.router.per_expert_scale", Role::other, 1, -1},
        RoleCase{"model.layers.1.experts.gate_up_proj", Role::gate_up_proj, 1, all_experts},
        RoleCase{"model.layers.1.moe.gate_up_proj", Role::gate_up_proj, 1, all_experts},
        RoleCase{"model.layers.1.mlp.gate_proj", Role::gate_proj, 1, -1}));

// The word "gate" is in three roles; a list never decides which.
TEST(ModuleRoles, RouterGateProjectionAndSharedGateDiffer) {
  EXPECT_EQ(find_role("model.layers.0.mlp.gate").role, Role::router);
  EXPECT_EQ(find_role("model.layers.0.mlp.gate_proj").role, Role::gate_proj);
  EXPECT_EQ(find_role("model.layers.0.mlp.experts.3.gate_proj").role, Role::gate_proj);
  EXPECT_EQ(find_role("model.layers.0.mlp.shared_expert_gate").role, Role::shared_expert_gate);
}

}  // namespace
}  // namespace fewbit
