// SPDX-License-Identifier: Apache-2.0
#include "scheme/layer_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/quote.hpp"
#include "scheme/config_section.hpp"
#include "scheme/gguf_layer_config.hpp"
#include "scheme/model_json.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t most = INT32_MAX;

bool any_of(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::ranges::any_of(beginnings,
                             [&](std::string_view start) { return name.starts_with(start); });
}

// Of a model that hears and speaks too, the part that thinks.
const Json& language_model(const Json& root) {
  const Json* thinker = root.find("thinker_config");
  return thinker != nullptr && thinker->is_object() && root.find("text_config") == nullptr
             ? *thinker
             : root;
}

// One integer, also where it is stated once a layer, or in DBRX's section of the experts.
Result<std::optional<std::int64_t>> one_integer(const ConfigSection& config,
                                                ConfigSection::Keys keys) {
  ConfigSection::Entry entry = config.find(keys);
  if (const auto section = config.find({"ffn_config"}); !entry && section) {
    for (const std::string_view key : keys) {
      const Json* value = section.value->find(key);
      if (value != nullptr) entry = {key, value};
    }
  }
  if (!entry) return std::optional<std::int64_t>{};
  const Json* value = entry.value;
  const Json::Array* list = value->as_array();
  if (list != nullptr && !list->empty() && std::ranges::all_of(*list, [&](const Json& item) {
        return item.as_int64() && item.as_int64() == list->front().as_int64();
      })) {
    value = &list->front();
  }
  const auto number = value->as_int64();
  if (!number || *number < 1 || *number > most) {
    return config.refuse(ErrorCode::corrupt, entry.key, *entry.value,
                         fmt::format("an integer from 1 to {}, or a list of one such", most));
  }
  FEWBIT_TRY(config.agree(keys));
  return number;
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
  FEWBIT_TRY(const auto top_k, one_integer(config, top_k_keys));
  if (!top_k) {
    // Says which key is missing.
    FEWBIT_TRY(config.required_integer(top_k_keys, 1, most));
  }
  router.top_k = static_cast<int>(top_k.value_or(1));
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

// Where nothing is said, or something else: bf16.
Result<void> read_dtype(const ConfigSection& config, ModelConfig& model) {
  FEWBIT_TRY(const auto name, config.string({"dtype", "torch_dtype"}));
  if (name && *name == "float16") model.dtype = DType::f16;
  if (name && *name == "float32") model.dtype = DType::f32;
  return {};
}

bool has_experts(const Identified& identified) {
  return std::ranges::any_of(identified.modules,
                             [](const Module& module) { return module.expert != -1; });
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
  FEWBIT_TRY(const ModelJson file, read_model_json(checkpoint));
  const std::string where = (checkpoint.directory() / file.name).string();
  if (file.root == nullptr) return Error{ErrorCode::not_found, "file does not exist", where};
  if (!file.root->is_object()) {
    return Error{ErrorCode::corrupt, fmt::format("is {}, expected an object", file.root->kind()),
                 where};
  }
  const ConfigSection config(language_model(*file.root), where);
  ModelConfig model;
  FEWBIT_TRY(auto model_type, config.string({"model_type"}));
  model.model_type = std::move(model_type).value_or("");
  FEWBIT_TRY(const auto experts, one_integer(config, num_experts_keys));
  if (!experts && !has_experts(identified)) {
    return Error{ErrorCode::unsupported,
                 "the model has no MoE layer: no number of experts, and no tensor is an expert's",
                 where};
  }
  FEWBIT_TRY(model.hidden_size, config.required_integer({"hidden_size", "d_model"}, 1, most));
  // A model of any depth has fewer layers than this.
  FEWBIT_TRY(model.num_layers,
             config.required_integer({"num_hidden_layers", "num_layers", "n_layers"}, 1, 1 << 16));
  if (experts) {
    model.num_experts = *experts;
  } else {
    FEWBIT_TRY(model.num_experts, config.required_integer(num_experts_keys, 1, most));
  }
  FEWBIT_TRY(const auto expert_size,
             one_integer(config, {"moe_intermediate_size", "expert_ffn_hidden_size"}));
  model.moe_intermediate_size = expert_size.value_or(0);  // the tensors know
  FEWBIT_TRY(const auto positions, config.integer({"max_position_embeddings"}, 1, most));
  model.max_positions = positions.value_or(2048);
  FEWBIT_TRY(read_router(config, identified, model));
  FEWBIT_TRY(read_activation(config, model));
  FEWBIT_TRY(read_dtype(ConfigSection(*file.root, where), model));
  FEWBIT_TRY(read_dtype(config, model));
  find_moe_layers(identified, model);
  return model;
}

}  // namespace fewbit
