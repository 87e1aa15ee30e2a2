// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <span>

#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

enum class SuffixKind { weight, plain, quantization };
struct Suffix {
  std::string_view text;
  SuffixKind kind;
};

// Suffixes after a dot. Longer ones that end in a shorter one come first.
constexpr Suffix dot_suffixes[] = {
    {"weight.absmax", SuffixKind::quantization},
    {"weight.quant_map", SuffixKind::quantization},
    {"weight.nested_absmax", SuffixKind::quantization},
    {"weight.nested_quant_map", SuffixKind::quantization},
    {"weight.quant_state.bitsandbytes__nf4", SuffixKind::quantization},
    {"weight.quant_state.bitsandbytes__fp4", SuffixKind::quantization},
    {"weight.scale", SuffixKind::quantization},  // some GGUF files; others have "scale"
    {"weight", SuffixKind::weight},
    {"weight_packed", SuffixKind::weight},
    {"weight.compressed", SuffixKind::weight},
    {"weight.bitmask", SuffixKind::quantization},
    {"weight.shape", SuffixKind::quantization},
    {"weight.row_offsets", SuffixKind::quantization},
    {"compressed", SuffixKind::weight},
    {"bitmask", SuffixKind::quantization},
    {"row_offsets", SuffixKind::quantization},
    {"shape", SuffixKind::quantization},
    {"scale_packed", SuffixKind::quantization},
    {"qweight", SuffixKind::weight},
    {"q_weight", SuffixKind::weight},
    {"W_q", SuffixKind::weight},
    {"trellis", SuffixKind::weight},
    {"blocks", SuffixKind::weight},
    {"bias", SuffixKind::plain},
    {"k_scale", SuffixKind::plain},
    {"v_scale", SuffixKind::plain},
    {"q_scale", SuffixKind::quantization},  // also EXL2's scale: decided by its neighbours
    {"k_bias", SuffixKind::plain},
    {"v_bias", SuffixKind::plain},
    {"output_scale", SuffixKind::plain},
    {"output_zero_point", SuffixKind::plain},
    {"prob_output_scale", SuffixKind::plain},
    {"kv_scale", SuffixKind::plain},
    {"kv_fake_quantizer.qscale_act", SuffixKind::plain},  // Mistral's own names of these
    {"q_fake_quantizer.qscale_act", SuffixKind::plain},
    {"k_fake_quantizer.qscale_act", SuffixKind::plain},
    {"v_fake_quantizer.qscale_act", SuffixKind::plain},
    {"input_scale", SuffixKind::quantization},
    {"input_scale_2", SuffixKind::quantization},
    {"input_global_scale", SuffixKind::quantization},
    {"input_zero_point", SuffixKind::quantization},
    {"input_amax", SuffixKind::quantization},
    {"input_scale_ub", SuffixKind::quantization},
    {"activation_scale", SuffixKind::quantization},
    {"qscale_act", SuffixKind::quantization},
    {"qscale_weight", SuffixKind::quantization},
    {"weight_scale", SuffixKind::quantization},
    {"weight_scale_2", SuffixKind::quantization},
    {"weight_scale_inv", SuffixKind::quantization},
    {"weight_global_scale", SuffixKind::quantization},
    {"weight_zero_point", SuffixKind::quantization},
    {"weight_shape", SuffixKind::quantization},
    {"weight_g_idx", SuffixKind::quantization},
    {"weight_format", SuffixKind::quantization},
    {"weight_amax", SuffixKind::quantization},
    {"pre_quant_scale", SuffixKind::quantization},
    {"svdquant_lora_a", SuffixKind::quantization},
    {"svdquant_lora_b", SuffixKind::quantization},
    {"lora_rank", SuffixKind::quantization},
    {"qzeros", SuffixKind::quantization},
    {"scales", SuffixKind::quantization},
    {"biases", SuffixKind::quantization},
    {"wscales", SuffixKind::quantization},
    {"g_idx", SuffixKind::quantization},
    {"scale", SuffixKind::quantization},
    {"scale_inv", SuffixKind::quantization},
    {"scales_inv", SuffixKind::quantization},
    {"zero", SuffixKind::quantization},
    {"SCB", SuffixKind::quantization},
    {"meta", SuffixKind::quantization},
    {"nbits", SuffixKind::quantization},
    {"group_size", SuffixKind::quantization},
    {"axis", SuffixKind::quantization},
    {"packing", SuffixKind::quantization},
    {"q_invperm", SuffixKind::quantization},
    {"q_perm", SuffixKind::quantization},
    {"q_scale_max", SuffixKind::quantization},
    {"q_groups", SuffixKind::quantization},
    {"suh", SuffixKind::quantization},
    {"svh", SuffixKind::quantization},
    {"su", SuffixKind::quantization},
    {"sv", SuffixKind::quantization},
    {"mcg", SuffixKind::quantization},
    {"mul1", SuffixKind::quantization},
};

// Modules of fused experts, whose suffixes follow an underscore.
constexpr std::array<std::string_view, 4> fused_modules = {"gate_up_proj", "down_proj", "gate_proj",
                                                           "up_proj"};
constexpr Suffix underscore_suffixes[] = {
    {"blocks", SuffixKind::weight},
    {"packed", SuffixKind::weight},
    {"weight_packed", SuffixKind::weight},
    {"bias", SuffixKind::plain},
    {"scales", SuffixKind::quantization},
    {"scale", SuffixKind::quantization},
    {"scale_inv", SuffixKind::quantization},
    {"scales_inv", SuffixKind::quantization},
    {"shape", SuffixKind::quantization},
    {"weight_scale", SuffixKind::quantization},
    {"weight_scale_2", SuffixKind::quantization},
    {"weight_scale_inv", SuffixKind::quantization},
    {"weight_global_scale", SuffixKind::quantization},
    {"weight_shape", SuffixKind::quantization},
    {"weight_zero_point", SuffixKind::quantization},
    {"weight_g_idx", SuffixKind::quantization},
    {"global_scale", SuffixKind::quantization},
    {"zero_point", SuffixKind::quantization},
    {"g_idx", SuffixKind::quantization},
    {"input_scale", SuffixKind::quantization},
    {"input_scale_2", SuffixKind::quantization},
    {"input_global_scale", SuffixKind::quantization},
    {"input_zero_point", SuffixKind::quantization},
    {"input_amax", SuffixKind::quantization},
    {"input_scale_ub", SuffixKind::quantization},
    {"activation_scale", SuffixKind::quantization},
    {"qscale_act", SuffixKind::quantization},
    {"pre_quant_scale", SuffixKind::quantization},
};

constexpr std::string_view activation_scales[] = {"input_scale",        "input_scale_2",
                                                  "input_global_scale", "input_scale_ub",
                                                  "activation_scale",   "qscale_act"};
constexpr std::string_view activation_others[] = {"input_zero_point", "input_amax"};

// "experts.down_proj_weight_scale" -> "experts.down_proj" + "weight_scale".
bool split_fused(std::string_view name, TensorName& out) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  const std::string_view last = name.substr(dot + 1);
  for (const std::string_view module : fused_modules) {
    if (!last.starts_with(module) || last.size() <= module.size() + 1) continue;
    if (last[module.size()] != '_') continue;
    const std::string_view suffix = last.substr(module.size() + 1);
    for (const Suffix& known : underscore_suffixes) {
      if (known.text != suffix) continue;
      out = {std::string(name.substr(0, dot + 1 + module.size())), std::string(suffix)};
      return true;
    }
  }
  return false;
}

// torchao writes the parts of a tensor one by one: "up_proj._weight_qdata" of "up_proj.weight",
// "experts._down_proj_scale" of "experts.down_proj".
constexpr Suffix flattened_suffixes[] = {
    {"_weight_qdata", SuffixKind::weight},
    {"_weight_scale", SuffixKind::quantization},
    {"_weight_zero_point", SuffixKind::quantization},
    {"_weight_per_tensor_scale", SuffixKind::quantization},
    {"_weight_act_quant_scale", SuffixKind::quantization},
    {"_weight_act_per_tensor_scale", SuffixKind::quantization},
    {"_weight_act_pre_scale", SuffixKind::quantization},
};

const Suffix* find_suffix(std::string_view text) {
  const auto find_in = [&](std::span<const Suffix> list) {
    const auto at = std::find_if(list.begin(), list.end(),
                                 [&](const Suffix& suffix) { return suffix.text == text; });
    return at != list.end() ? &*at : nullptr;
  };
  for (const std::span<const Suffix> list :
       {std::span<const Suffix>(dot_suffixes), std::span<const Suffix>(underscore_suffixes),
        std::span<const Suffix>(flattened_suffixes)}) {
    if (const Suffix* suffix = find_in(list)) return suffix;
  }
  return nullptr;
}

bool split_flattened(std::string_view name, TensorName& out) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || name.substr(dot).size() < 3 || name[dot + 1] != '_')
    return false;
  constexpr std::string_view weight = "_weight";
  const std::string_view last = name.substr(dot + 1);
  for (const Suffix& suffix : flattened_suffixes) {
    if (last == suffix.text) {
      out = {std::string(name.substr(0, dot)), std::string(suffix.text)};
      return true;
    }
    for (const std::string_view module : fused_modules) {
      const bool is_it = last.substr(1).starts_with(module) &&
                         last.substr(1 + module.size()) == suffix.text.substr(weight.size());
      if (!is_it) continue;
      out = {std::string(name.substr(0, dot + 1)) + std::string(module), std::string(suffix.text)};
      return true;
    }
  }
  return false;
}

bool is_linear_layer(std::string_view module) {
  constexpr std::string_view short_names[] = {"w1", "w2", "w3", "wq", "wk", "wv", "wo", "lm_head"};
  const std::string_view last = module.substr(module.rfind('.') + 1);
  return last.ends_with("_proj") ||
         std::find(std::begin(short_names), std::end(short_names), last) != std::end(short_names);
}

// "self_attn.q_proj_activation_scale" -> "self_attn.q_proj" + "activation_scale": Mistral's FP8
// releases put an underscore before it also in linear layers.
bool split_activation(std::string_view name, TensorName& out) {
  for (const std::string_view suffix : activation_scales) {
    if (name.size() <= suffix.size() + 1 || !name.ends_with(suffix)) continue;
    const std::string_view module = name.substr(0, name.size() - suffix.size() - 1);
    if (name[module.size()] != '_' || !is_linear_layer(module)) continue;
    out = {std::string(module), std::string(suffix)};
    return true;
  }
  return false;
}

}  // namespace

TensorName split_tensor_name(std::string_view name) {
  for (const Suffix& suffix : dot_suffixes) {
    if (name.size() <= suffix.text.size() + 1 || !name.ends_with(suffix.text)) continue;
    const std::size_t dot = name.size() - suffix.text.size() - 1;
    if (name[dot] == '.') return {std::string(name.substr(0, dot)), std::string(suffix.text)};
  }
  TensorName fused;
  const bool split =
      split_flattened(name, fused) || split_fused(name, fused) || split_activation(name, fused);
  if (split) return fused;
  return {std::string(name), "weight"};
}

bool is_quantization_suffix(std::string_view suffix) {
  const Suffix* known = find_suffix(suffix);
  if (known == nullptr) return false;
  return known->kind == SuffixKind::quantization ||
         (known->kind == SuffixKind::weight && suffix != "weight");
}

bool is_activation_scale(std::string_view suffix) {
  return std::find(std::begin(activation_scales), std::end(activation_scales), suffix) !=
         std::end(activation_scales);
}

bool is_activation_suffix(std::string_view suffix) {
  return is_activation_scale(suffix) ||
         std::find(std::begin(activation_others), std::end(activation_others), suffix) !=
             std::end(activation_others);
}

bool is_weight_suffix(std::string_view suffix) {
  const Suffix* known = find_suffix(suffix);
  return known != nullptr && known->kind == SuffixKind::weight;
}

bool has_weight(const Module& module) {
  return std::any_of(module.parts.begin(), module.parts.end(),
                     [](const auto& part) { return is_weight_suffix(part.suffix); });
}

std::vector<std::string_view> split_dots(std::string_view name) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t dot = name.find('.');
    parts.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    name.remove_prefix(dot + 1);
  }
}

}  // namespace fewbit
