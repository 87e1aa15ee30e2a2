// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_metadata.hpp"
#include "fewbit/checkpoint.hpp"
#include "scheme/config_section.hpp"
#include "scheme/model_json.hpp"
#include "select/split_plan.hpp"

namespace fewbit {
namespace {

std::optional<std::int64_t> size_of(const ConfigSection& config, ConfigSection::Keys keys) {
  const auto value = config.integer(keys, 1, INT32_MAX);
  return value ? *value : std::nullopt;
}

std::optional<std::int64_t> size_of(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = metadata.find_of_architecture(key);
  const auto size = value != nullptr ? value->as_int64() : std::nullopt;
  return size && *size > 0 && *size <= INT32_MAX ? size : std::nullopt;
}

}  // namespace

SplitSizes read_split_sizes(const Checkpoint& checkpoint) {
  SplitSizes sizes;
  if (const GgufMetadata* metadata = checkpoint.gguf_metadata()) {
    sizes.heads = size_of(*metadata, "attention.head_count");
    sizes.kv_heads = size_of(*metadata, "attention.head_count_kv");
    sizes.vocab = size_of(*metadata, "vocab_size");
    sizes.experts = size_of(*metadata, "expert_count");
    return sizes;
  }
  const auto file = read_model_json(checkpoint);
  if (!file || file->root == nullptr) return sizes;
  const ConfigSection config(*file->root, file->name);
  sizes.heads = size_of(config, {"num_attention_heads"});
  sizes.kv_heads = size_of(config, {"num_key_value_heads"});
  // Latent attention keeps one compressed head for all: nothing is divided by key/value heads.
  if (config.find({"kv_lora_rank"})) sizes.kv_heads = std::nullopt;
  sizes.vocab = size_of(config, {"vocab_size"});
  sizes.experts = size_of(config, num_experts_keys);
  return sizes;
}

}  // namespace fewbit
