// SPDX-License-Identifier: Apache-2.0
// Roles of the names that GGUF converters give: "blk.<layer>.<part>".
#include "scheme/gguf_roles.hpp"

#include <algorithm>

namespace fewbit {
namespace {

struct Name {
  std::string_view text;
  Role role;
  int expert = -1;
};

// What stands behind "blk.<layer>."; the suffixes .weight, .bias and .scale are no part of it.
constexpr Name names[] = {
    {"ffn_gate_inp", Role::router},
    {"exp_probs_b", Role::router_bias},
    {"ffn_gate_inp_shexp", Role::shared_expert_gate},
    {"ffn_gate_exps", Role::gate_proj, all_experts},
    {"ffn_up_exps", Role::up_proj, all_experts},
    {"ffn_down_exps", Role::down_proj, all_experts},
    {"ffn_gate_up_exps", Role::gate_up_proj, all_experts},
    {"ffn_gate_shexp", Role::shared_gate_proj},
    {"ffn_up_shexp", Role::shared_up_proj},
    {"ffn_down_shexp", Role::shared_down_proj},
    {"ffn_gate", Role::gate_proj},
    {"ffn_up", Role::up_proj},
    {"ffn_down", Role::down_proj},
    {"ffn_latent_down", Role::latent_proj},
    {"ffn_latent_up", Role::latent_proj},
    {"attn_q", Role::q_proj},
    {"attn_k", Role::k_proj},
    {"attn_v", Role::v_proj},
    {"attn_output", Role::o_proj},
};

bool is_norm(std::string_view part) { return part.find("norm") != std::string_view::npos; }

}  // namespace

std::optional<ModuleRole> find_gguf_role(std::span<const std::string_view> parts) {
  if (parts.size() < 3 || parts[0] != "blk") return std::nullopt;
  const std::optional<int> layer = name_number(parts[1]);
  if (!layer) return std::nullopt;
  ModuleRole out{Role::other, *layer, -1};
  const std::string_view part = parts[2];
  const auto* known = std::find_if(std::begin(names), std::end(names),
                                   [&](const Name& name) { return name.text == part; });
  if (known != std::end(names)) {
    out.role = known->role;
    out.expert = known->expert;
    // Old Mixtral files: one tensor an expert, "ffn_gate.<expert>".
    if (parts.size() == 4 && part.starts_with("ffn_")) {
      const std::optional<int> expert = name_number(parts[3]);
      if (!expert) return ModuleRole{Role::other, *layer, -1};
      out.expert = *expert;
    } else if (parts.size() > 3) {
      out = {Role::other, *layer, -1};
    }
    return out;
  }
  if (is_norm(parts.back())) {
    out.role = Role::norm;
  } else if (part.starts_with("attn_") || part.starts_with("ssm_")) {
    out.role = Role::attention_other;
  }
  return out;
}

bool has_gemma4_scale(std::string_view module) {
  return module.starts_with("blk.") &&
         (module.ends_with(".ffn_gate_inp") || module.ends_with(".ffn_down_exps"));
}

}  // namespace fewbit
