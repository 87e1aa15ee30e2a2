// SPDX-License-Identifier: Apache-2.0
// What config.json says of the model, without any opinion: a wrong or missing key is somebody
// else's error.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "checkpoint/gguf_metadata.hpp"
#include "checkpoint/json.hpp"
#include "fewbit/checkpoint.hpp"

namespace fewbit {

struct ModelHints {
  std::string model_type;  // empty when unknown
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> num_layers;
  std::set<std::int64_t> empty_layers;  // with neither attention nor MLP: DeciLM's no_op blocks
};
// The first place that says it: the top, then the section of the language model.
ModelHints read_model_hints(const Json& config);
// A single integer of the architecture; empty for a list a layer.
std::optional<std::int64_t> gguf_size(const GgufMetadata& metadata, std::string_view key);
// block_count counts the token-prediction layers too, which files may leave out; num_layers
// doesn't.
ModelHints read_model_hints(const GgufMetadata& metadata);
// Empty where the checkpoint says nothing of its model.
ModelHints read_model_hints(const Checkpoint& checkpoint);

}  // namespace fewbit
