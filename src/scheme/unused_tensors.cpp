// SPDX-License-Identifier: Apache-2.0
#include "scheme/unused_tensors.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

bool has_part(const Module& module, std::initializer_list<std::string_view> wanted) {
  const std::vector<std::string_view> parts = split_dots(module.name);
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return std::find(wanted.begin(), wanted.end(), part) != wanted.end();
  });
}

// Scales of quantized activations and caches; both are kept in 16 bits here.
bool is_free_suffix(std::string_view suffix) {
  constexpr std::string_view names[] = {"k_scale",      "v_scale",           "kv_scale",
                                        "output_scale", "prob_output_scale", "output_zero_point"};
  return is_activation_scale(suffix) ||
         std::find(std::begin(names), std::end(names), suffix) != std::end(names);
}

bool same_bytes(const Checkpoint& checkpoint, std::string_view a, std::string_view b) {
  const TensorInfo* first = checkpoint.find(a);
  const TensorInfo* second = checkpoint.find(b);
  if (first == nullptr || second == nullptr || first->dtype != second->dtype ||
      first->shape != second->shape) {
    return false;
  }
  const Tensor x = checkpoint.tensor(*first);
  const Tensor y = checkpoint.tensor(*second);
  return std::equal(x.view.bytes.begin(), x.view.bytes.end(), y.view.bytes.begin(),
                    y.view.bytes.end());
}

}  // namespace

std::map<int, ExtraLayer> extra_layers(const Identified& identified, std::int64_t num_layers) {
  std::map<int, ExtraLayer> out;
  for (const Module& module : identified.modules) {
    if (module.layer < num_layers || outside_language_model(module.name)) continue;
    ExtraLayer& layer = out.try_emplace(module.layer, ExtraLayer{false, module.name}).first->second;
    layer.prediction =
        layer.prediction || has_part(module, {"eh_proj", "enorm", "hnorm", "shared_head"});
  }
  return out;
}

Result<void> check_layer_count(const Identified& identified, const ModelConfig& config,
                               const std::string& config_file) {
  for (const auto& [number, layer] : extra_layers(identified, config.num_layers)) {
    if (layer.prediction) continue;
    return Error{
        ErrorCode::inconsistent,
        fmt::format("num_hidden_layers is {}, but the tensors have a decoder layer {} ({})",
                    config.num_layers, number, layer.example),
        config_file};
  }
  return {};
}

std::vector<std::string> unused_tensors(const Checkpoint& checkpoint, const Identified& identified,
                                        const ModelConfig& config,
                                        const std::unordered_set<std::string>& used) {
  const std::map<int, ExtraLayer> extra = extra_layers(identified, config.num_layers);
  std::vector<std::string> out;
  for (const Module& module : identified.modules) {
    if (outside_language_model(module.name) || has_part(module, {"inv_freq"})) continue;
    const auto layer = extra.find(module.layer);
    if (layer != extra.end() && layer->second.prediction) continue;
    for (const Module::Part& part : module.parts) {
      if (is_free_suffix(part.suffix) || used.contains(part.tensor)) continue;
      if (module.role == Role::head && config.tie_word_embeddings &&
          same_bytes(checkpoint, part.tensor, "model.embed_tokens.weight")) {
        continue;
      }
      out.push_back(part.tensor);
    }
  }
  return out;
}

}  // namespace fewbit
