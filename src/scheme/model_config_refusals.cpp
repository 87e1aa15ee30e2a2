// SPDX-License-Identifier: Apache-2.0
// Keys of config.json that would change the model's arithmetic beyond what ModelConfig holds. A
// model run without them would be silently wrong, so they are refused by name.
#include <fmt/format.h>

#include <cmath>

#include "scheme/model_config.hpp"

namespace fewbit {
namespace {

// Present and not null, false, zero or an empty list.
bool in_use(const Json& value) {
  if (const auto flag = value.as_bool()) return *flag;
  if (const auto number = value.as_double()) return *number != 0.0;
  if (const Json::Array* array = value.as_array()) return !array->empty();
  return !value.is_null();
}

constexpr std::string_view must_be_unused[] = {
    // attention
    "attention_bias", "qkv_bias", "use_qkv_bias", "attention_chunk_size", "kv_lora_rank",
    "q_lora_rank", "clip_qkv", "attn_logit_softcapping", "attn_output_gate", "use_sliding_window",
    "linear_num_value_heads", "full_attention_interval", "query_pre_attn_scalar",
    "attn_temperature_tuning", "use_parallel_residual", "rope_interleave", "no_rope_layers",
    "no_rope_layer_interval", "nope_layer_interval", "rope_local_base_freq",
    // MLP and experts
    "mlp_bias", "use_bias", "n_shared_experts", "num_shared_experts", "num_shared_expert",
    "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size",
    "shared_intermediate_size", "moe_latent_size", "zero_expert_num", "add_router_probs",
    "use_grouped_topk", "use_routing_bias", "use_expert_bias", "moe_router_enable_expert_bias",
    // which layers are what
    "hybrid_override_pattern", "layers_block_type", "interleave_moe_layer_step", "moe_layers",
    // logits
    "final_logit_softcapping", "logit_scale"};

// Factors that do nothing only when they are one.
constexpr std::string_view must_be_one[] = {
    "partial_rotary_factor", "embedding_multiplier", "residual_multiplier",
    "logits_scaling",        "rotary_pct",           "scale_emb"};

Result<void> refuse_sliding_window(const ConfigSection& config) {
  if (const auto types = config.find({"layer_types"})) {
    const Json::Array* array = types.value->as_array();
    if (array == nullptr) {
      return config.refuse(ErrorCode::corrupt, types.key, *types.value, "a list of strings");
    }
    FEWBIT_TRY(const auto layers, config.integer({"num_hidden_layers"}, 1, INT64_MAX));
    if (layers && static_cast<std::int64_t>(array->size()) != *layers) {
      return config.refuse(ErrorCode::inconsistent, types.key, *types.value,
                           fmt::format("an entry for each of {} layers", *layers));
    }
    for (const Json& item : *array) {
      const std::string* type = item.as_string();
      if (type == nullptr || *type != "full_attention") {
        return config.refuse(ErrorCode::unsupported, types.key, *types.value,
                             "full_attention in every layer");
      }
    }
  }
  // With use_sliding_window (false, or it was refused already) the window is a leftover number.
  const auto window = config.find({"sliding_window"});
  if (!window || config.find({"use_sliding_window"})) return {};
  FEWBIT_TRY(const auto positions, config.integer({"max_position_embeddings"}, 1, INT64_MAX));
  const auto size = window.value->as_int64();
  if (size && positions && *size >= *positions) return {};
  return config.refuse(ErrorCode::unsupported, window.key, *window.value,
                       "null or at least max_position_embeddings");
}

}  // namespace

Result<void> refuse_unsupported_keys(const ConfigSection& config) {
  for (const std::string_view key : must_be_unused) {
    const auto entry = config.find({key});
    if (entry && in_use(*entry.value)) {
      return config.refuse(ErrorCode::unsupported, entry.key, *entry.value,
                           "it not to be in use (fewbit can't honour it yet)");
    }
  }
  for (const std::string_view key : must_be_one) {
    const auto entry = config.find({key});
    if (entry && entry.value->as_double() != 1.0) {
      return config.refuse(ErrorCode::unsupported, entry.key, *entry.value, "1");
    }
  }
  return refuse_sliding_window(config);
}

Result<double> read_rope_theta(const ConfigSection& config) {
  FEWBIT_TRY(const std::optional<double> own, config.number({"rope_theta"}));
  std::optional<double> theta = own;
  for (const std::string_view key : {"rope_scaling", "rope_parameters"}) {
    const auto rope = config.find({key});
    if (!rope) continue;
    const Json::Object* members = rope.value->as_object();
    if (members == nullptr) {
      return config.refuse(ErrorCode::corrupt, rope.key, *rope.value, "an object or null");
    }
    for (const auto& [name, value] : *members) {
      const std::string* type = value.as_string();
      const bool is_type = name == "rope_type" || name == "type";
      const bool is_full = name == "partial_rotary_factor" && value.as_double() == 1.0;
      if ((is_type && type != nullptr && *type == "default") || is_full) continue;
      const std::optional<double> inner = value.as_double();
      if (name != "rope_theta" || !inner) {
        return config.refuse(ErrorCode::unsupported, rope.key, *rope.value,
                             "null or {\"rope_type\":\"default\",\"rope_theta\":…}");
      }
      if (theta && *theta != *inner) {
        return Error{
            ErrorCode::inconsistent,
            fmt::format("{}.rope_theta is {}, but rope_theta is {}", rope.key, *inner, *theta),
            config.where()};
      }
      theta = inner;
    }
  }
  const double result = theta.value_or(10000.0);
  if (!std::isfinite(result) || result < 1.0) {
    return Error{ErrorCode::corrupt,
                 fmt::format("rope_theta is {}, expected a finite number of at least 1", result),
                 config.where()};
  }
  return result;
}

}  // namespace fewbit
