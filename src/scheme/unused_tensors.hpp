// SPDX-License-Identifier: Apache-2.0
// Tensors that a model does not read. Leaving arithmetic out is silently wrong, so only those that
// can't change its results may stay unread.
#pragma once

#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "fewbit/scheme.hpp"

namespace fewbit {

// A layer behind the last one of config.json. `prediction`: it has tensors that only a
// token-prediction head has (eh_proj, enorm, hnorm, shared_head), so the model runs without it.
struct ExtraLayer {
  bool prediction = false;
  std::string example;  // name of one of its modules
};
std::map<int, ExtraLayer> extra_layers(const Identified& identified, std::int64_t num_layers);

// Error inconsistent, with both numbers of layers, when a layer behind the last one is an ordinary
// decoder layer.
Result<void> check_layer_count(const Identified& identified, const ModelConfig& config,
                               const std::string& config_file);

// Tensors that are neither in `used` nor free to be left out: activation and key/value scales,
// rotary buffers, token-prediction layers, vision and audio towers, a stored copy of a tied head.
std::vector<std::string> unused_tensors(const Checkpoint& checkpoint, const Identified& identified,
                                        const ModelConfig& config,
                                        const std::unordered_set<std::string>& used);

}  // namespace fewbit
