// SPDX-License-Identifier: Apache-2.0
#include "scheme/model_hints.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "scheme/model_json.hpp"

namespace fewbit {
namespace {

bool is_no_op(const Json& block, std::string_view part) {
  const Json* member = block.find(part);
  const Json* no_op = member != nullptr ? member->find("no_op") : nullptr;
  return no_op != nullptr && no_op->as_bool() == true;
}

void read_empty_layers(const Json& config, ModelHints& hints) {
  const Json* blocks = config.find("block_configs");
  const Json::Array* list = blocks != nullptr ? blocks->as_array() : nullptr;
  if (list == nullptr) return;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& block = (*list)[i];
    if (!is_no_op(block, "attention") || !is_no_op(block, "ffn")) continue;
    hints.empty_layers.insert(static_cast<std::int64_t>(i));
  }
}

void read_empty_layers(const GgufMetadata& metadata, ModelHints& hints) {
  const GgufValue* heads = metadata.find_of_architecture("attention.head_count");
  const GgufValue* widths = metadata.find_of_architecture("feed_forward_length");
  if (heads == nullptr || widths == nullptr || !heads->is_array() || !widths->is_array()) return;
  for (std::uint64_t i = 0; i < std::min(heads->size(), widths->size()); ++i) {
    if (heads->int64_at(i) != 0 || widths->int64_at(i) != 0) continue;
    hints.empty_layers.insert(static_cast<std::int64_t>(i));
  }
}

}  // namespace

std::optional<std::int64_t> gguf_size(const GgufMetadata& metadata, std::string_view key) {
  const GgufValue* value = metadata.find_of_architecture(key);
  return value != nullptr ? value->as_int64() : std::nullopt;
}

ModelHints read_model_hints(const Json& config) {
  ModelHints hints;
  std::vector<const Json*> sections = {&config};
  for (const std::string_view name : {"text_config", "llm_config", "language_config"}) {
    if (const Json* section = config.find(name)) sections.push_back(section);
  }
  for (const Json* section : sections) {
    const Json* type = section->find("model_type");
    const std::string* name = type != nullptr ? type->as_string() : nullptr;
    if (name != nullptr && hints.model_type.empty()) hints.model_type = *name;
    const Json* hidden = section->find("hidden_size");
    if (hidden != nullptr && !hints.hidden_size) hints.hidden_size = hidden->as_int64();
    const Json* layers = section->find("num_hidden_layers");
    if (layers != nullptr && !hints.num_layers) hints.num_layers = layers->as_int64();
  }
  read_empty_layers(config, hints);
  return hints;
}

ModelHints read_model_hints(const GgufMetadata& metadata) {
  ModelHints hints;
  hints.model_type = std::string(metadata.architecture().value_or(""));
  hints.hidden_size = gguf_size(metadata, "embedding_length");
  hints.num_layers = gguf_size(metadata, "block_count");
  const std::int64_t drafts = gguf_size(metadata, "nextn_predict_layers").value_or(0);
  if (hints.num_layers && drafts > 0 && drafts < *hints.num_layers) *hints.num_layers -= drafts;
  read_empty_layers(metadata, hints);
  return hints;
}

ModelHints read_model_hints(const Checkpoint& checkpoint) {
  if (const GgufMetadata* metadata = checkpoint.gguf_metadata()) return read_model_hints(*metadata);
  const auto config = read_model_json(checkpoint);
  return config && config->root != nullptr ? read_model_hints(*config->root) : ModelHints{};
}

}  // namespace fewbit
