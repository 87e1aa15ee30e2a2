// SPDX-License-Identifier: Apache-2.0
#include "scheme/gguf_layer_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/quote.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t most = INT32_MAX;
constexpr std::int64_t default_context = 2048;

class Keys {
 public:
  Keys(const GgufMetadata& metadata, const std::string& where)
      : metadata_(metadata), where_(where) {}

  Result<std::optional<std::int64_t>> integer(std::string_view key, std::int64_t low) const {
    const GgufValue* value = metadata_.find_of_architecture(key);
    if (value == nullptr) return std::optional<std::int64_t>();
    const auto number = value->as_int64();
    if (number && *number >= low && *number <= most) return number;
    return Error{ErrorCode::corrupt,
                 fmt::format("{}: expected an integer from {} to {}, found {}", key, low, most,
                             value->text()),
                 where_};
  }
  Result<std::int64_t> required(std::string_view key) const {
    FEWBIT_TRY(const auto value, integer(key, 1));
    if (value) return *value;
    return Error{ErrorCode::corrupt, fmt::format("{}: expected an integer, found nothing", key),
                 where_};
  }
  std::optional<bool> boolean(std::string_view key) const {
    const GgufValue* value = metadata_.find_of_architecture(key);
    return value != nullptr ? value->as_bool() : std::nullopt;
  }
  const std::string& where() const { return where_; }

 private:
  const GgufMetadata& metadata_;
  const std::string& where_;
};

// As llama.cpp builds their experts.
Result<ActivationParams> activation_of(std::string_view architecture, const std::string& where) {
  constexpr std::array<std::string_view, 20> silu = {
      "bailingmoe", "bailingmoe2",  "dbrx",     "deepseek",   "deepseek2",
      "dots1",      "ernie4_5-moe", "glm4moe",  "granitemoe", "hunyuan-moe",
      "jamba",      "kimi-linear",  "llama",    "minimax-m2", "mistral3",
      "olmoe",      "phimoe",       "qwen2moe", "qwen3moe",   "qwen3next"};
  if (std::ranges::find(silu, architecture) != silu.end()) return ActivationParams{};
  if (architecture == "gpt-oss") {
    return ActivationParams{Activation::swigluoai, 1.702F, 1.0F, 7.0F};
  }
  return Error{
      ErrorCode::unsupported,
      fmt::format("experts of architecture {}: their function is not known", quote(architecture)),
      where};
}

// llama.cpp's numbers: 1 softmax, 2 sigmoid, 3 softmax over the chosen.
Result<void> read_router(const Keys& keys, RouterParams& router) {
  FEWBIT_TRY(const std::int64_t top_k, keys.required("expert_used_count"));
  router.top_k = static_cast<int>(top_k);
  FEWBIT_TRY(const auto gating, keys.integer("expert_gating_func", 0));
  const std::int64_t function = gating.value_or(1);
  if (function > 3) {
    return Error{ErrorCode::unsupported,
                 fmt::format("expert_gating_func {}, expected 1 to 3", function), keys.where()};
  }
  router.score = function == 2 ? Score::sigmoid : Score::softmax;
  // Absent in files of models that renormalize without a word.
  router.renormalize = function == 3 || keys.boolean("expert_weights_norm").value_or(true);
  FEWBIT_TRY(const auto groups, keys.integer("expert_group_count", 1));
  FEWBIT_TRY(const auto top_groups, keys.integer("expert_group_used_count", 1));
  router.num_groups = static_cast<int>(groups.value_or(1));
  router.top_groups = static_cast<int>(top_groups.value_or(router.num_groups));
  return {};
}

}  // namespace

Result<ModelConfig> read_gguf_layer_config(const GgufMetadata& metadata, const std::string& where) {
  const Keys keys(metadata, where);
  ModelConfig model;
  model.model_type = std::string(metadata.architecture().value_or(""));
  FEWBIT_TRY(model.activation, activation_of(model.model_type, where));
  FEWBIT_TRY(model.hidden_size, keys.required("embedding_length"));
  FEWBIT_TRY(model.num_layers, keys.required("block_count"));
  FEWBIT_TRY(model.num_experts, keys.required("expert_count"));
  FEWBIT_TRY(const auto inner, keys.integer("expert_feed_forward_length", 1));
  model.moe_intermediate_size = inner.value_or(0);  // the tensors know
  FEWBIT_TRY(const auto context, keys.integer("context_length", 1));
  model.max_positions = context.value_or(default_context);
  FEWBIT_TRY(read_router(keys, model.router));
  return model;
}

}  // namespace fewbit
