// SPDX-License-Identifier: Apache-2.0
// Role, layer and expert of a module, from its name.
#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "scheme/fused_names.hpp"
#include "scheme/gguf_roles.hpp"
#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

using Components = std::span<const std::string_view>;

bool one_of(std::string_view text, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Vision and audio towers: their layers have numbers of their own.
bool is_tower(std::string_view part) {
  return one_of(part, {"visual", "vision_tower", "vision_model", "vision_encoder", "image_encoder",
                       "audio_tower", "audio_model", "audio_encoder", "speech_encoder",
                       "multi_modal_projector", "mm_projector"});
}

// Token-prediction heads beside the layers.
bool is_prediction_head(std::string_view part) { return one_of(part, {"mtp", "mtp_layers"}); }

// gate, up, down of one MLP, dense or expert. w1 = gate, w3 = up, w2 = down in every family.
Role projection(std::string_view name) {
  if (one_of(name, {"gate_proj", "w1", "gate_projs"})) return Role::gate_proj;
  if (one_of(name, {"up_proj", "w3", "up_projs"})) return Role::up_proj;
  if (one_of(name, {"down_proj", "w2", "down_projs", "output_linear"})) return Role::down_proj;
  if (one_of(name, {"gate_up_proj", "gate_up_projs", "input_linear", "up_gate_proj"})) {
    return Role::gate_up_proj;
  }
  return Role::other;
}

Role shared_projection(std::string_view name) {
  switch (projection(name)) {
    case Role::gate_proj:
      return Role::shared_gate_proj;
    case Role::up_proj:
      return Role::shared_up_proj;
    case Role::down_proj:
      return Role::shared_down_proj;
    case Role::gate_up_proj:
      return Role::shared_gate_up_proj;
    default:
      return Role::other;
  }
}

// parts: what follows "experts". "7.up_proj", "up_proj" (all experts) or "down_projs.7".
ModuleRole expert_role(Components parts) {
  ModuleRole out;
  if (parts.empty()) return out;
  if (parts.back() == "e_score_correction_bias") return {Role::router_bias, -1, -1};
  const bool wrapped = one_of(parts.back(), {"linear", "base_layer"});
  const std::size_t size = parts.size() - (wrapped ? 1 : 0);
  if (const auto expert = name_number(parts.front()); expert && size > 1) {
    return {size == 2 ? projection(parts[1]) : Role::other, -1, *expert};
  }
  const Role role = projection(parts.front());
  if (role == Role::other) return out;
  if (size == 1) return {role, -1, all_experts};
  // "down_projs.7"; else a tensor below the experts' own.
  const auto expert = size == 2 ? name_number(parts[1]) : std::nullopt;
  return expert ? ModuleRole{role, -1, *expert} : out;
}

Role router_role(Components parts) {
  if (parts.empty() || one_of(parts.front(), {"layer", "linear", "proj", "wg"}))
    return Role::router;
  if (parts.back() == "e_score_correction_bias") return Role::router_bias;
  return parts.back().find("norm") != std::string_view::npos ? Role::norm : Role::other;
}

// Around the routed experts of Kimi-K3 and Nemotron-H.
Role latent_role(std::string_view name) {
  const bool known = one_of(name, {"routed_expert_down_proj", "routed_expert_up_proj",
                                   "fc1_latent_proj", "fc2_latent_proj"});
  if (known) return Role::latent_proj;
  return name == "routed_expert_norm" ? Role::norm : Role::other;
}

Role attention_role(std::string_view last) {
  if (last == "q_proj") return Role::q_proj;
  if (last == "k_proj") return Role::k_proj;
  if (last == "v_proj") return Role::v_proj;
  if (last == "o_proj") return Role::o_proj;
  if (last.find("norm") != std::string_view::npos) return Role::norm;
  return Role::attention_other;
}

// parts: what follows the MLP's own component ("mlp", "block_sparse_moe", …).
ModuleRole mlp_role(std::string_view block, Components parts) {
  if (parts.empty()) return {};
  const std::string_view first = parts.front();
  if (first == "experts") return expert_role(parts.subspan(1));
  if (first == "switch_mlp") return expert_role(parts.subspan(1));
  if (one_of(first, {"shared_expert", "shared_experts", "shared_mlp"})) {
    return {shared_projection(parts.back()), -1, -1};
  }
  if (first == "shared_expert_gate") return {Role::shared_expert_gate, -1, -1};
  if (parts.back() == "e_score_correction_bias") return {Role::router_bias, -1, -1};
  if (one_of(first, {"gate", "router"})) return {router_role(parts.subspan(1)), -1, -1};
  if (const Role latent = latent_role(first); latent != Role::other) return {latent, -1, -1};
  if (parts.size() > 1) return {};
  const Role role = projection(first);
  // Granite names its fused experts like a dense layer.
  const bool fused = one_of(block, {"block_sparse_moe", "moe"}) && role != Role::other;
  if (role != Role::other || block != "mixer") return {role, -1, fused ? all_experts : -1};
  // Nemotron-H: the mixer of a layer is an MLP, an attention or a state-space model.
  const bool known = one_of(
      first, {"q_proj", "k_proj", "v_proj", "o_proj", "in_proj", "out_proj", "conv1d", "norm"});
  return {known ? attention_role(first) : Role::other, -1, -1};
}

// parts: what follows "layers.<int>".
ModuleRole layer_role(Components parts) {
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::string_view part = parts[i];
    const Components rest = parts.subspan(i + 1);
    if (one_of(part, {"self_attn", "attn", "attention", "linear_attn", "mamba"}) && !rest.empty()) {
      return {attention_role(rest.back()), -1, -1};
    }
    if (one_of(part, {"mlp", "block_sparse_moe", "ffn", "feed_forward", "mixer", "moe"})) {
      return mlp_role(part, rest);
    }
    // Gemma puts the experts and their router beside the dense MLP.
    if (part == "experts" && !rest.empty()) return expert_role(rest);
    if (part == "router") return {router_role(rest), -1, -1};
    // Granite and Hunyuan put the shared expert beside the block.
    if (one_of(part, {"shared_mlp", "shared_expert", "shared_experts"}) && !rest.empty()) {
      return {shared_projection(rest.back()), -1, -1};
    }
  }
  const bool norm = !parts.empty() && parts.back().find("norm") != std::string_view::npos;
  return {norm ? Role::norm : Role::other, -1, -1};
}

Role outer_role(std::string_view last) {
  if (one_of(last, {"embed_tokens", "embed", "embeddings", "embed_in", "wte", "word_embeddings",
                    "tok_embeddings", "token_embd"})) {
    return Role::embedding;
  }
  if (one_of(last, {"lm_head", "head", "output", "embed_out", "output_layer"})) return Role::head;
  if (last.find("norm") != std::string_view::npos || last == "ln_f") return Role::norm;
  return Role::other;
}

// What a layer's number stands behind; GPT-2, MPT and DBRX have names of their own.
bool holds_layers(Components parts, std::size_t at) {
  if (parts[at] == "layers") return true;
  if (at == 0) return parts[at] == "h";
  return parts[at - 1] == "transformer" && one_of(parts[at], {"h", "blocks"});
}

// parts: what follows "mtp": "layers.0.mlp.gate", "0.ffn.gate". Without the number of a layer, for
// those of the model begin at 0 too.
ModuleRole prediction_role(Components parts) {
  if (!parts.empty() && parts.front() == "layers") parts = parts.subspan(1);
  if (parts.empty()) return {};
  if (name_number(parts.front())) parts = parts.subspan(1);
  return layer_role(parts);
}

}  // namespace

std::optional<int> name_number(std::string_view part) {
  int value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (error != std::errc{} || end != part.data() + part.size() || value < 0) return std::nullopt;
  return value;
}

std::string without_numbers(std::string_view name) {
  std::string out;
  for (const std::string_view part : split_dots(name)) {
    out += out.empty() ? "" : ".";
    out += name_number(part) ? "#" : part;
  }
  return out;
}

bool is_projection(Role role) {
  switch (role) {
    case Role::router:
    case Role::gate_proj:
    case Role::up_proj:
    case Role::down_proj:
    case Role::gate_up_proj:
    case Role::shared_gate_proj:
    case Role::shared_up_proj:
    case Role::shared_down_proj:
    case Role::shared_gate_up_proj:
    case Role::latent_proj:
    case Role::q_proj:
    case Role::k_proj:
    case Role::v_proj:
    case Role::o_proj:
    case Role::head:
      return true;
    default:
      return false;
  }
}

bool is_models_own_scale(std::string_view part) {
  return one_of(part, {"layer_scale", "logit_scale", "embed_scale", "per_expert_scale"});
}

bool is_table(std::string_view module) {
  const std::string_view last = module.substr(module.rfind('.') + 1);
  return one_of(last, {"position_ids", "inv_freq"}) || last.ends_with("tid2eid");
}

bool outside_language_model(std::string_view module) {
  const std::vector<std::string_view> parts = split_dots(module);
  return std::any_of(parts.begin(), parts.end(), [](std::string_view part) {
    return is_tower(part) || is_prediction_head(part);
  });
}

std::string layer_path(std::string_view module) {
  const std::string_view name = without_wrapper_prefix(module);
  std::size_t end = 0;
  for (const std::string_view part : split_dots(name)) {
    end += part.size() + 1;
    if (name_number(part)) break;
  }
  return std::string(name.substr(0, end - 1));
}

std::vector<std::string> names_of_experts(const Module& module) {
  constexpr std::int64_t most_experts = 4096;
  constexpr std::string_view component = "experts.";
  const std::size_t at = module.name.rfind(component);
  const bool whole = at != std::string::npos && (at == 0 || module.name[at - 1] == '.');
  if (module.expert != all_experts || !whole || module.experts > most_experts) return {};
  const std::size_t end = at + component.size();
  std::vector<std::string> names;
  for (std::int64_t expert = 0; expert < module.experts; ++expert) {
    names.push_back(module.name.substr(0, end) + std::to_string(expert) + "." +
                    module.name.substr(end));
  }
  return names;
}

ModuleRole find_role(std::string_view module) {
  const std::vector<std::string_view> parts = split_dots(module);
  if (std::any_of(parts.begin(), parts.end(), is_tower)) return {};
  if (const auto role = find_gguf_role(parts)) return *role;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    const Components rest = Components(parts).subspan(i + 1);
    if (is_prediction_head(parts[i])) return prediction_role(rest);
    if (!holds_layers(parts, i)) continue;
    const std::optional<int> layer = name_number(rest.front());
    if (!layer) continue;
    ModuleRole out = layer_role(rest.subspan(1));
    out.layer = *layer;
    // Qwen's first models: w1 is what others call up, w2 the gate.
    if (parts[i] == "h" && one_of(parts.back(), {"w1", "w2", "w3"})) out.role = Role::other;
    return out;
  }
  return {outer_role(parts.back()), -1, -1};
}

}  // namespace fewbit
