// SPDX-License-Identifier: Apache-2.0
// Keys that other families have. The code of this one ignores them, so a value that asks for
// something is either a mistake or another model: refused by name, neither applied nor dropped.
#include <fmt/format.h>

#include <cmath>

#include "scheme/model_config.hpp"

namespace fewbit {
namespace {

Error foreign(const ConfigSection& config, const ConfigSection::Entry& entry,
              const ModelConfig& model, const std::string& expected) {
  return config.refuse(
      ErrorCode::unsupported, entry.key, *entry.value,
      fmt::format("{}: model_type {} does not apply it", expected, model.model_type));
}

Result<void> must_be_number(const ConfigSection& config, const ModelConfig& model,
                            ConfigSection::Keys keys, double neutral) {
  FEWBIT_TRY(config.agree(keys));
  const auto entry = config.find(keys);
  if (!entry || entry.value->as_double() == neutral) return {};
  return foreign(config, entry, model, fmt::format("{}", neutral));
}

Result<void> must_be_flag(const ConfigSection& config, const ModelConfig& model,
                          ConfigSection::Keys keys, bool neutral) {
  const auto entry = config.find(keys);
  if (!entry || entry.value->as_bool() == neutral) return {};
  return foreign(config, entry, model, neutral ? "true" : "false");
}

Result<void> refuse_router_keys(const ConfigSection& config, const ModelConfig& model) {
  FEWBIT_TRY(must_be_number(config, model, scaling_keys, 1));
  FEWBIT_TRY(must_be_number(config, model, group_keys, 1));
  FEWBIT_TRY(must_be_number(config, model, {"topk_group"}, 1));
  FEWBIT_TRY(must_be_number(config, model, {"first_k_dense_replace"}, 0));
  FEWBIT_TRY(must_be_number(config, model, {"moe_layer_freq"}, 1));
  const auto method = config.find({"topk_method"});
  const std::string* name = method ? method.value->as_string() : nullptr;
  if (method && (name == nullptr || *name != "greedy")) {
    return foreign(config, method, model, "\"greedy\"");
  }
  if (model.model_type == "qwen3_moe") return {};
  FEWBIT_TRY(must_be_number(config, model, {"decoder_sparse_step"}, 1));
  FEWBIT_TRY(const auto dense, config.integers({"mlp_only_layers"}));
  if (!dense.empty())
    return foreign(config, config.find({"mlp_only_layers"}), model, "an empty list");
  if (model.model_type == "mixtral") {
    FEWBIT_TRY(must_be_flag(config, model, renormalize_keys, true));
  }
  return must_be_number(config, model, {"moe_intermediate_size"},
                        static_cast<double>(model.intermediate_size));
}

// Of the clamped activation alone.
Result<void> refuse_activation_keys(const ConfigSection& config, const ModelConfig& model) {
  if (model.activation.kind == Activation::swigluoai) return {};
  for (const std::string_view key : {"swiglu_limit", "swiglu_alpha"}) {
    const auto entry = config.find({key});
    if (!entry || entry.value->as_double() == 0.0) continue;
    return config.refuse(
        ErrorCode::unsupported, entry.key, *entry.value,
        fmt::format("none: {} does not apply it", activation_name(model.activation.kind)));
  }
  return {};
}

Result<void> refuse_attention_keys(const ConfigSection& config, const ModelConfig& model) {
  const bool normed = model.model_type != "mixtral";
  FEWBIT_TRY(must_be_flag(config, model, {"use_qk_norm"}, normed));
  FEWBIT_TRY(must_be_flag(config, model, {"qk_norm"}, normed));
  FEWBIT_TRY(must_be_number(config, model, {"rotary_dim"}, static_cast<double>(model.head_dim)));
  const auto factor = config.find({"attention_multiplier"});
  const double usual = 1.0 / std::sqrt(static_cast<double>(model.head_dim));
  const auto value = factor ? factor.value->as_double() : std::optional(usual);
  if (value && std::fabs(*value - usual) <= 1e-6 * usual) return {};
  return foreign(config, factor, model, fmt::format("{:.6g}, which is 1/sqrt(head_dim)", usual));
}

}  // namespace

Result<void> refuse_foreign_keys(const ConfigSection& config, const ModelConfig& model) {
  FEWBIT_TRY(refuse_router_keys(config, model));
  FEWBIT_TRY(refuse_activation_keys(config, model));
  FEWBIT_TRY(refuse_attention_keys(config, model));
  // The same number under a name that is not read.
  for (const std::string_view key : {"norm_eps", "layer_norm_eps", "layer_norm_epsilon"}) {
    FEWBIT_TRY(must_be_number(config, model, {key}, model.rms_norm_eps));
  }
  return {};
}

}  // namespace fewbit
