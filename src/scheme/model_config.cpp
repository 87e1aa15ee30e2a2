// SPDX-License-Identifier: Apache-2.0
// config.json as a ModelConfig.
#include "scheme/model_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/quote.hpp"
#include "scheme/model_json.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t max_width = std::int64_t{1} << 20;  // hidden, intermediate, head sizes
constexpr std::int64_t max_count = std::int64_t{1} << 16;  // layers, heads, experts
constexpr std::int64_t max_vocab = std::int64_t{1} << 26;
constexpr std::int64_t max_context = INT32_MAX;

enum class Renormalize { by_key, always };

// What a family's router does and its config does not say.
struct Family {
  std::string_view model_type;
  Renormalize renormalize;
  bool norm_topk_prob_default;
  bool expert_size_is_intermediate_size;
};
constexpr Family families[] = {
    {"qwen3_moe", Renormalize::by_key, false, false},
    {"mixtral", Renormalize::always, true, true},
    {"olmoe", Renormalize::by_key, false, true},
};

Result<const Family*> find_family(const ConfigSection& config, const std::string& model_type) {
  std::string known;
  for (const Family& family : families) {
    if (family.model_type == model_type) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return Error{ErrorCode::unsupported,
               fmt::format("model_type {} is not known; known: {}", quote(model_type), known),
               config.where()};
}

Error inconsistent(const ConfigSection& config, std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), config.where()};
}

Result<void> read_names(const ConfigSection& config, ModelConfig& model) {
  FEWBIT_TRY(auto model_type, config.string({"model_type"}));
  if (!model_type) {
    return Error{ErrorCode::corrupt, "model_type is missing, expected a string", config.where()};
  }
  model.model_type = *std::move(model_type);
  if (const auto entry = config.find({"architectures"})) {
    const Json::Array* list = entry.value->as_array();
    const std::string* name =
        list != nullptr && !list->empty() ? list->front().as_string() : nullptr;
    if (name == nullptr) {
      return config.refuse(ErrorCode::corrupt, entry.key, *entry.value, "a list of strings");
    }
    model.architecture = *name;
  }
  FEWBIT_TRY(const auto dtype, config.string({"dtype", "torch_dtype"}));
  if (!dtype || *dtype == "bfloat16") return {};
  if (*dtype == "float16") {
    model.dtype = DType::f16;
  } else if (*dtype == "float32") {
    model.dtype = DType::f32;
  } else {
    return Error{
        ErrorCode::unsupported,
        fmt::format("torch_dtype is \"{}\", expected bfloat16, float16 or float32", *dtype),
        config.where()};
  }
  return {};
}

Result<void> read_sizes(const ConfigSection& config, ModelConfig& model) {
  FEWBIT_TRY(model.hidden_size, config.required_integer({"hidden_size"}, 1, max_width));
  FEWBIT_TRY(model.intermediate_size, config.required_integer({"intermediate_size"}, 1, max_width));
  FEWBIT_TRY(model.num_layers, config.required_integer({"num_hidden_layers"}, 1, max_count));
  FEWBIT_TRY(model.num_heads, config.required_integer({"num_attention_heads"}, 1, max_count));
  FEWBIT_TRY(const auto kv_heads, config.integer({"num_key_value_heads"}, 1, max_count));
  model.num_kv_heads = kv_heads.value_or(model.num_heads);
  FEWBIT_TRY(const auto head_dim, config.integer({"head_dim"}, 1, max_width));
  FEWBIT_TRY(model.vocab_size, config.required_integer({"vocab_size"}, 1, max_vocab));
  FEWBIT_TRY(const auto positions, config.integer({"max_position_embeddings"}, 1, max_context));
  model.max_positions = positions.value_or(2048);
  if (model.num_heads % model.num_kv_heads != 0) {
    return inconsistent(config, fmt::format("num_attention_heads {} is no multiple of "
                                            "num_key_value_heads {}",
                                            model.num_heads, model.num_kv_heads));
  }
  if (!head_dim && model.hidden_size % model.num_heads != 0) {
    return inconsistent(config, fmt::format("hidden_size {} is no multiple of "
                                            "num_attention_heads {} and head_dim is missing",
                                            model.hidden_size, model.num_heads));
  }
  model.head_dim = head_dim.value_or(model.hidden_size / model.num_heads);
  if (model.head_dim % 2 != 0) {
    return inconsistent(config, fmt::format("head_dim is {}, expected an even number (rotary "
                                            "embeddings pair the elements)",
                                            model.head_dim));
  }
  return {};
}

Result<void> read_router(const ConfigSection& config, const Family& family, ModelConfig& model) {
  FEWBIT_TRY(model.num_experts, config.required_integer(num_experts_keys, 1, max_count));
  FEWBIT_TRY(const std::int64_t top_k, config.required_integer(top_k_keys, 1, max_count));
  if (top_k > model.num_experts) {
    return inconsistent(config, fmt::format("num_experts_per_tok {} is more than num_experts {}",
                                            top_k, model.num_experts));
  }
  model.router.top_k = static_cast<int>(top_k);
  FEWBIT_TRY(config.agree(score_keys));
  FEWBIT_TRY(const auto score, config.string(score_keys));
  if (score && *score != "softmax") {
    return Error{ErrorCode::unsupported,
                 fmt::format("scoring_func is \"{}\", expected softmax for model_type {}", *score,
                             model.model_type),
                 config.where()};
  }
  FEWBIT_TRY(const auto renormalize, config.boolean(renormalize_keys));
  model.router.renormalize = family.renormalize == Renormalize::always ||
                             renormalize.value_or(family.norm_topk_prob_default);
  return {};
}

Result<void> read_activation(const ConfigSection& config, ModelConfig& model) {
  FEWBIT_TRY(const auto name, config.string({"hidden_act", "hidden_activation"}));
  if (!name) return {};
  Result<Activation> kind = activation_from_name(*name);
  if (!kind) return Error{kind.error().code, "hidden_act: " + kind.error().what, config.where()};
  model.activation.kind = *kind;
  if (*kind == Activation::swigluoai) {
    model.activation.alpha = 1.702F;
    model.activation.beta = 1.0F;
    model.activation.limit = 7.0F;
  }
  FEWBIT_TRY(const auto alpha, config.number({"swiglu_alpha"}));
  if (alpha) model.activation.alpha = static_cast<float>(*alpha);
  FEWBIT_TRY(const auto limit, config.number({"swiglu_limit"}));
  if (limit) model.activation.limit = static_cast<float>(*limit);
  return {};
}

// Layer i has routed experts when it is not in mlp_only_layers and (i + 1) % decoder_sparse_step
// is 0.
Result<void> read_moe_layers(const ConfigSection& config, ModelConfig& model) {
  FEWBIT_TRY(config.agree({"decoder_sparse_step", "moe_layer_freq"}));
  FEWBIT_TRY(const auto step, config.integer({"decoder_sparse_step"}, 1, max_count));
  FEWBIT_TRY(const std::vector<std::int64_t> mlp_only, config.integers({"mlp_only_layers"}));
  if (static_cast<std::int64_t>(mlp_only.size()) > model.num_layers) {
    return inconsistent(config, fmt::format("mlp_only_layers has {} entries for {} layers",
                                            mlp_only.size(), model.num_layers));
  }
  std::vector<bool> dense(static_cast<std::size_t>(model.num_layers));
  for (const std::int64_t layer : mlp_only) {
    if (layer < 0 || layer >= model.num_layers) {
      return inconsistent(config, fmt::format("mlp_only_layers has layer {}, expected 0 to {}",
                                              layer, model.num_layers - 1));
    }
    dense[static_cast<std::size_t>(layer)] = true;
  }
  model.moe_layer.resize(static_cast<std::size_t>(model.num_layers));
  for (std::int64_t i = 0; i < model.num_layers; ++i) {
    const bool on_step = (i + 1) % step.value_or(1) == 0;
    model.moe_layer[static_cast<std::size_t>(i)] = !dense[static_cast<std::size_t>(i)] && on_step;
  }
  return {};
}

Result<void> read_eos(const Json* root, const std::string& where, ModelConfig& model) {
  if (root == nullptr) return {};
  const ConfigSection config(*root, where);
  const auto entry = config.find({"eos_token_id"});
  if (!entry) return {};
  const Json::Array single = {*entry.value};
  const Json::Array* list = entry.value->as_array();
  for (const Json& item : list != nullptr ? *list : single) {
    const std::optional<std::int64_t> id = item.as_int64();
    if (!id || *id < 0 || *id >= model.vocab_size) {
      return config.refuse(ErrorCode::corrupt, entry.key, *entry.value,
                           fmt::format("token ids from 0 to {}", model.vocab_size - 1));
    }
    auto& ids = model.eos_token_ids;
    if (std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
  return {};
}

Result<void> read_norm_and_head(const ConfigSection& config, ModelConfig& model) {
  FEWBIT_TRY(const auto epsilon, config.number({"rms_norm_eps"}));
  model.rms_norm_eps = epsilon.value_or(1e-6);
  if (!(model.rms_norm_eps > 0.0 && model.rms_norm_eps < 1.0)) {
    return inconsistent(config, fmt::format("rms_norm_eps is {}, expected a number between 0 and 1",
                                            model.rms_norm_eps));
  }
  FEWBIT_TRY(model.rope_theta, read_rope_theta(config));
  FEWBIT_TRY(const auto tied, config.boolean({"tie_word_embeddings"}));
  model.tie_word_embeddings = tied.value_or(false);
  return {};
}

// Configs that are no language model's of the transformers library.
Result<void> refuse_other_files(const Json& root, const std::string& where) {
  if (!root.is_object()) {
    return Error{ErrorCode::corrupt, fmt::format("is {}, expected an object", root.kind()), where};
  }
  if (is_original_gpt_oss(root)) {
    return Error{ErrorCode::unsupported, "gpt-oss's original release, which has no model_type",
                 where};
  }
  if (root.find("model_type") == nullptr && !root.string_at("_class_name").empty()) {
    return Error{
        ErrorCode::unsupported,
        fmt::format("a part of a diffusers pipeline: {}", quote(root.string_at("_class_name"))),
        where};
  }
  return {};
}

}  // namespace

Result<ModelConfig> read_model_config(const Checkpoint& checkpoint) {
  FEWBIT_TRY(const std::shared_ptr<const Json> root, checkpoint.json_file("config.json"));
  const std::string where = (checkpoint.directory() / "config.json").string();
  if (root == nullptr) {
    const bool gguf = checkpoint.gguf_metadata() != nullptr;
    return Error{ErrorCode::not_found,
                 gguf ? "file does not exist, and fewbit runs no models by GGUF metadata"
                      : "file does not exist",
                 where};
  }
  FEWBIT_TRY(refuse_other_files(*root, where));
  const ConfigSection config(*root, where);
  ModelConfig model;
  FEWBIT_TRY(read_names(config, model));
  FEWBIT_TRY(const Family* family, find_family(config, model.model_type));
  FEWBIT_TRY(refuse_unsupported_keys(config));
  FEWBIT_TRY(read_sizes(config, model));
  FEWBIT_TRY(read_router(config, *family, model));
  FEWBIT_TRY(read_activation(config, model));
  FEWBIT_TRY(read_moe_layers(config, model));
  FEWBIT_TRY(read_norm_and_head(config, model));
  FEWBIT_TRY(const auto expert_size, config.integer({"moe_intermediate_size"}, 1, max_width));
  if (!expert_size && !family->expert_size_is_intermediate_size) {
    return Error{ErrorCode::corrupt, "moe_intermediate_size is missing, expected an integer",
                 where};
  }
  model.moe_intermediate_size = expert_size.value_or(model.intermediate_size);
  FEWBIT_TRY(refuse_foreign_keys(config, model));
  FEWBIT_TRY(read_eos(root.get(), where, model));
  FEWBIT_TRY(const std::shared_ptr<const Json> generation,
             checkpoint.json_file("generation_config.json"));
  FEWBIT_TRY(read_eos(generation.get(),
                      (checkpoint.directory() / "generation_config.json").string(), model));
  return model;
}

}  // namespace fewbit
