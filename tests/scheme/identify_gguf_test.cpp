// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "checkpoint/small_gguf.hpp"
#include "fewbit/scheme.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

// One layer of a small MoE model: stacked experts of three types, plain router and norms.
SmallGguf small_moe() {
  SmallGguf out;
  out.pair(gguf_pair("general.architecture", std::string("qwen3moe")));
  out.pair(gguf_pair("qwen3moe.block_count", std::uint32_t{1}));
  out.pair(gguf_pair("qwen3moe.embedding_length", std::uint32_t{256}));
  out.add("token_embd.weight", "Q6_K", {8, 256}).add("output.weight", "Q8_0", {8, 256});
  out.add("output_norm.weight", "F32", {256}).add("blk.0.attn_norm.weight", "F32", {256});
  out.add("blk.0.attn_q.weight", "Q4_K", {64, 256}).add("blk.0.attn_q.bias", "F32", {64});
  out.add("blk.0.attn_q_norm.weight", "F32", {32});
  out.add("blk.0.ffn_gate_inp.weight", "F32", {4, 256});
  out.add("blk.0.exp_probs_b.bias", "F32", {4});
  out.add("blk.0.ffn_gate_exps.weight", "MXFP4", {4, 96, 256});
  out.add("blk.0.ffn_up_exps.weight", "BF16", {4, 96, 256});
  out.add("blk.0.ffn_down_exps.weight", "NVFP4", {4, 256, 64});
  out.add_f32("blk.0.ffn_down_exps.scale", {4}, {1, 2, 3, 4});
  return out;
}

Identified identified(const SmallGguf& model) {
  const auto out = identify(model.open());
  EXPECT_TRUE(out) << (out ? "" : out.error().message());
  return *out;
}

TEST(IdentifyGguf, EveryModuleHasItsRoleSizeAndScheme) {
  struct Want {
    std::string name;
    Role role;
    int layer;
    int expert;
    std::int64_t n, k, experts;
    std::string scheme;
  };
  const Want wants[] = {
      {"blk.0.attn_norm", Role::norm, 0, -1, 256, 0, 0, "f32"},
      {"blk.0.attn_q", Role::q_proj, 0, -1, 64, 256, 0, "GGUF Q4_K"},
      {"blk.0.attn_q_norm", Role::norm, 0, -1, 32, 0, 0, "f32"},
      {"blk.0.exp_probs_b", Role::router_bias, 0, -1, 4, 0, 0, "f32"},
      {"blk.0.ffn_down_exps", Role::down_proj, 0, all_experts, 256, 64, 4, "GGUF NVFP4"},
      {"blk.0.ffn_gate_exps", Role::gate_proj, 0, all_experts, 96, 256, 4, "GGUF MXFP4"},
      {"blk.0.ffn_gate_inp", Role::router, 0, -1, 4, 256, 0, "f32"},
      {"blk.0.ffn_up_exps", Role::up_proj, 0, all_experts, 96, 256, 4, "bf16"},
      {"output", Role::head, -1, -1, 8, 256, 0, "GGUF Q8_0"},
      {"output_norm", Role::norm, -1, -1, 256, 0, 0, "f32"},
      {"token_embd", Role::embedding, -1, -1, 8, 256, 0, "GGUF Q6_K"},
  };
  const Identified found = identified(small_moe());
  EXPECT_EQ(found.producer, Producer::gguf);
  EXPECT_EQ(found.modules.size(), std::size(wants));
  for (const Want& want : wants) {
    const Module* module = found.find(want.name);
    ASSERT_NE(module, nullptr) << want.name;
    EXPECT_EQ(module->role, want.role) << want.name;
    EXPECT_EQ(module->layer, want.layer) << want.name;
    EXPECT_EQ(module->expert, want.expert) << want.name;
    EXPECT_EQ(module->n, want.n) << want.name;
    EXPECT_EQ(module->k, want.k) << want.name;
    EXPECT_EQ(module->experts, want.experts) << want.name;
    EXPECT_EQ(scheme_text(module->scheme), want.scheme) << want.name;
    EXPECT_EQ(module->unreadable, "") << want.name;
  }
  EXPECT_EQ(found.find("blk.0.ffn_down_exps")->evidence,
            "scale f32 [4] + weight NVFP4 [4, 256, 64]");
  EXPECT_TRUE(found.findings.empty()) << found.findings.front().rule;
}

TEST(IdentifyGguf, NamesOfOldAndSharedExpertsAreKnown) {
  struct Want {
    std::string_view module;
    Role role;
    int expert;
  };
  const Want wants[] = {
      {"blk.3.ffn_gate.7", Role::gate_proj, 7},
      {"blk.3.ffn_down.0", Role::down_proj, 0},
      {"blk.3.ffn_up", Role::up_proj, -1},
      {"blk.3.ffn_gate_up_exps", Role::gate_up_proj, all_experts},
      {"blk.3.ffn_gate_shexp", Role::shared_gate_proj, -1},
      {"blk.3.ffn_down_shexp", Role::shared_down_proj, -1},
      {"blk.3.ffn_gate_inp_shexp", Role::shared_expert_gate, -1},
      {"blk.3.attn_output", Role::o_proj, -1},
      {"blk.3.attn_kv_a_mqa", Role::attention_other, -1},
      {"blk.3.ssm_in", Role::attention_other, -1},
      {"blk.3.ffn_norm_exps", Role::norm, -1},
      {"blk.3.ffn_latent_down", Role::latent_proj, -1},
      {"blk.3.nextn.eh_proj", Role::other, -1},
      {"blk.3.nextn.shared_head_norm", Role::norm, -1},
      {"blk.3.ffn_gate.x", Role::other, -1},
      {"blk.3.attn_q.1", Role::other, -1},
  };
  for (const Want& want : wants) {
    const ModuleRole found = find_role(want.module);
    EXPECT_EQ(found.role, want.role) << want.module;
    EXPECT_EQ(found.expert, want.expert) << want.module;
    EXPECT_EQ(found.layer, 3) << want.module;
  }
  EXPECT_EQ(find_role("blk.x.ffn_up").layer, -1);
}

TEST(IdentifyGguf, BlocksThatCannotBeDecodedAreNamed) {
  SmallGguf model;
  model.add("blk.0.ffn_gate.weight", *find_gguf_type(40, 32), {96, 256});
  GgufType unknown{99, "new", 32, 7};
  model.add("blk.0.ffn_down.weight", unknown, {2, 32});
  const Identified found = identified(model);
  EXPECT_EQ(found.producer, Producer::gguf);
  EXPECT_THAT(found.find("blk.0.ffn_gate")->unreadable,
              HasSubstr("Q1_0 (32): a private type under the id of NVFP4"));
  EXPECT_THAT(found.find("blk.0.ffn_down")->unreadable, HasSubstr("type 99: unknown blocks"));
  EXPECT_EQ(found.find("blk.0.ffn_down")->n, 2);
  EXPECT_EQ(found.find("blk.0.ffn_down")->k, 32);
}

// The first Q2_0 files and PQ2_0 have one layout; the scheme says so, whatever the id in the file.
TEST(IdentifyGguf, Q2_0OfBothExtentsIsTwoSchemes) {
  for (const std::int64_t elements : {64, 128}) {
    SmallGguf model;
    model.add("blk.0.ffn_up.weight", *find_gguf_type(42, elements), {64, 256});
    const Identified found = identified(model);
    const Module* module = found.find("blk.0.ffn_up");
    ASSERT_NE(module, nullptr);
    EXPECT_EQ(module->scheme.ggml_type, elements == 64 ? 42 : 142);
    EXPECT_EQ(module->unreadable, "");
  }
}

}  // namespace
}  // namespace fewbit
