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

TEST(TensorName, AnUnknownNameIsAModuleOfItsOwn) {
  EXPECT_EQ(split("mlp.gate.e_score_correction_bias"),
            Split("mlp.gate.e_score_correction_bias", "weight"));
  EXPECT_EQ(split("weight"), Split("weight", "weight"));
  EXPECT_EQ(split(".weight"), Split(".weight", "weight"));
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
        RoleCase{"model.norm", Role::norm, -1, -1}, RoleCase{"lm_head", Role::head, -1, -1},
        RoleCase{"mtp.layers.0.mlp.experts.0.up_proj", Role::other, -1, -1},
        RoleCase{"model.visual.layers.0.mlp.gate_proj", Role::other, -1, -1},
        // numbers that are none
        RoleCase{"model.layers.99999999999.mlp.gate", Role::other, -1, -1},
        RoleCase{"model.layers.-1.mlp.gate", Role::other, -1, -1},
        RoleCase{"", Role::other, -1, -1}));

}  // namespace
}  // namespace fewbit
