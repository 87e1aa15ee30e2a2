// SPDX-License-Identifier: Apache-2.0
#include "scheme/model_json.hpp"

#include <string_view>
#include <utility>

#include "checkpoint/json_text.hpp"

namespace fewbit {
namespace {

using Names = std::pair<std::string_view, std::string_view>;  // in params.json, in config.json

constexpr Names model_keys[] = {
    {"dim", "hidden_size"},
    {"n_layers", "num_hidden_layers"},
    {"hidden_dim", "intermediate_size"},
    {"n_heads", "num_attention_heads"},
    {"n_kv_heads", "num_key_value_heads"},
    {"norm_eps", "rms_norm_eps"},
    {"tied_embeddings", "tie_word_embeddings"},
};
constexpr Names moe_keys[] = {
    {"num_experts", "num_experts"},
    {"num_experts_per_tok", "num_experts_per_tok"},
    {"expert_hidden_dim", "moe_intermediate_size"},
    {"num_shared_experts", "n_shared_experts"},
    {"num_expert_groups", "n_group"},
    {"num_expert_groups_per_tok", "topk_group"},
    {"routed_scale", "routed_scaling_factor"},
    {"first_k_dense_replace", "first_k_dense_replace"},
};

template <std::size_t N>
void add_names(const Json& from, const Names (&names)[N], Json& to) {
  for (const auto& [native, usual] : names) {
    const Json* value = from.find(native);
    if (value != nullptr && to.find(usual) == nullptr) to.set(usual, *value);
  }
}

// {"qformat_weight": "fp8_e4m3", "qscheme_act": "TENSOR" or "NO_SCALES"} as a method's block; other
// blocks have their quant_method.
Json usual_quantization(const Json& block) {
  const Json* weight = block.find("qformat_weight");
  if (weight == nullptr || weight->as_string() == nullptr || *weight->as_string() != "fp8_e4m3") {
    return block;
  }
  const Json* activation = block.find("qscheme_act");
  const bool dynamic = activation != nullptr && activation->as_string() != nullptr &&
                       *activation->as_string() == "NO_SCALES";
  Json out = block;
  if (out.find("quant_method") == nullptr) out.set("quant_method", "fp8");
  if (out.find("activation_scheme") == nullptr) {
    out.set("activation_scheme", dynamic ? "dynamic" : "static");
  }
  return out;
}

Json with_usual_names(const Json& params) {
  Json out = params;
  add_names(params, model_keys, out);
  if (const Json* moe = params.find("moe")) add_names(*moe, moe_keys, out);
  if (const Json* block = params.find("quantization")) {
    out.set("quantization", usual_quantization(*block));
  }
  return out;
}

}  // namespace

std::string native_key(const Json& params, std::string_view usual) {
  const Json* value = params.find(usual);
  const auto is_it = [&](const Json* native) {
    return native != nullptr && value != nullptr && json_text(*native) == json_text(*value);
  };
  for (const auto& [native, name] : model_keys) {
    if (name == usual && (value == nullptr || is_it(params.find(native))))
      return std::string(native);
  }
  const Json* moe = params.find("moe");
  for (const auto& [native, name] : moe_keys) {
    if (name != usual) continue;
    if (value == nullptr || (moe != nullptr && is_it(moe->find(native)))) {
      return "moe." + std::string(native);
    }
  }
  return "";
}

bool is_original_gpt_oss(const Json& config) {
  return config.find("model_type") == nullptr && config.find("initial_context_length") != nullptr &&
         config.find("swiglu_limit") != nullptr;
}

Result<ModelJson> read_model_json(const Checkpoint& checkpoint) {
  ModelJson out;
  FEWBIT_TRY(out.root, checkpoint.json_file(out.name));
  if (out.root != nullptr) return out;
  FEWBIT_TRY(const auto params, checkpoint.json_file(params_file));
  if (params == nullptr || !params->is_object()) return out;
  out.name = params_file;
  out.root = std::make_shared<const Json>(with_usual_names(*params));
  return out;
}

}  // namespace fewbit
