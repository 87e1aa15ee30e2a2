// SPDX-License-Identifier: Apache-2.0
#include "scheme/layer_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/quote.hpp"
#include "scheme/config_section.hpp"
#include "scheme/gguf_layer_config.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t most = INT32_MAX;

bool any_of(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings,
                             [&](std::string_view start) { return name.starts_with(start); });
}

bool has_correction_bias(const Identified& identified) {
  return std::ranges::any_of(identified.modules, [](const Module& module) {
    return module.name.ends_with("e_score_correction_bias") ||
           !module.part("e_score_correction_bias").empty();
  });
}

Result<Score> read_score(const ConfigSection& config, const Identified& identified) {
  FEWBIT_TRY(const auto name, config.string(score_keys));
  if (!name) return has_correction_bias(identified) ? Score::sigmoid : Score::softmax;
  if (*name == "softmax") return Score::softmax;
  if (*name == "sigmoid") return Score::sigmoid;
  if (*name == "sqrtsoftplus") return Score::sqrt_softplus;
  return Error{
      ErrorCode::unsupported,
      fmt::format("scoring_func {}, expected softmax, sigmoid or sqrtsoftplus", quote(*name)),
      config.where()};
}

Result<void> read_router(const ConfigSection& config, const Identified& identified,
                         ModelConfig& model) {
  RouterParams& router = model.router;
  FEWBIT_TRY(router.score, read_score(config, identified));
  FEWBIT_TRY(const std::int64_t top_k, config.required_integer(top_k_keys, 1, most));
  router.top_k = static_cast<int>(top_k);
  FEWBIT_TRY(const auto renormalize, config.boolean(renormalize_keys));
  // Their own defaults; the others renormalize.
  const bool by_default = !any_of(model.model_type, {"qwen2_moe", "olmoe", "deepseek_v2"});
  router.renormalize = renormalize.value_or(by_default);
  FEWBIT_TRY(const auto groups, config.integer(group_keys, 1, most));
  FEWBIT_TRY(const auto top_groups, config.integer({"topk_group"}, 1, most));
  router.num_groups = static_cast<int>(groups.value_or(1));
  router.top_groups = static_cast<int>(top_groups.value_or(router.num_groups));
  return {};
}

Result<void> read_activation(const ConfigSection& config, ModelConfig& model) {
  // gpt-oss names another function than it has.
  const bool clamped = any_of(model.model_type, {"gpt_oss"});
  FEWBIT_TRY(const auto name, config.string({"mlp_hidden_act", "hidden_act", "hidden_activation"}));
  if (name && !clamped) {
    FEWBIT_TRY(model.activation.kind, activation_from_name(*name));
  }
  if (clamped || model.activation.kind == Activation::swigluoai) {
    model.activation = {Activation::swigluoai, 1.702F, 1.0F, 7.0F};
  }
  FEWBIT_TRY(const auto limit, config.number({"swiglu_limit"}));
  if (limit) model.activation.limit = static_cast<float>(*limit);
  return {};
}

// Draft layers stand behind the model's own and are not asked about.
void find_moe_layers(const Identified& identified, ModelConfig& model) {
  model.moe_layer.assign(static_cast<std::size_t>(model.num_layers), false);
  for (const Module& module : identified.modules) {
    if (module.expert == -1 || module.layer < 0 || module.layer >= model.num_layers) continue;
    model.moe_layer[static_cast<std::size_t>(module.layer)] = true;
  }
}

}  // namespace

Result<ModelConfig> read_layer_config(const Checkpoint& checkpoint, const Identified& identified) {
  if (const GgufMetadata* metadata = checkpoint.gguf_metadata()) {
    FEWBIT_TRY(ModelConfig model,
               read_gguf_layer_config(*metadata, checkpoint.shards().front().string()));
    find_moe_layers(identified, model);
    return model;
  }
  FEWBIT_TRY(const std::shared_ptr<const Json> root, checkpoint.json_file("config.json"));
  const std::string where = (checkpoint.directory() / "config.json").string();
  if (root == nullptr) return Error{ErrorCode::not_found, "file does not exist", where};
  if (!root->is_object()) {
    return Error{ErrorCode::corrupt, fmt::format("is {}, expected an object", root->kind()), where};
  }
  const ConfigSection config(*root, where);
  ModelConfig model;
  FEWBIT_TRY(auto model_type, config.string({"model_type"}));
  model.model_type = std::move(model_type).value_or("");
  FEWBIT_TRY(model.hidden_size, config.required_integer({"hidden_size"}, 1, most));
  // A model of any depth has fewer layers than this.
  FEWBIT_TRY(model.num_layers, config.required_integer({"num_hidden_layers"}, 1, 1 << 16));
  FEWBIT_TRY(model.num_experts, config.required_integer(num_experts_keys, 1, most));
  FEWBIT_TRY(const auto expert_size,
             config.integer({"moe_intermediate_size", "expert_ffn_hidden_size"}, 1, most));
  model.moe_intermediate_size = expert_size.value_or(0);  // the tensors know
  FEWBIT_TRY(const auto positions, config.integer({"max_position_embeddings"}, 1, most));
  model.max_positions = positions.value_or(2048);
  FEWBIT_TRY(read_router(config, identified, model));
  FEWBIT_TRY(read_activation(config, model));
  find_moe_layers(identified, model);
  return model;
}

}  // namespace fewbit
