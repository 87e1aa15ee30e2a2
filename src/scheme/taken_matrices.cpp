// SPDX-License-Identifier: Apache-2.0
#include "scheme/taken_matrices.hpp"

#include <algorithm>
#include <iterator>

#include "scheme/name_parts.hpp"

namespace fewbit {
namespace {

bool is_one_of(std::string_view text, std::span<const std::string_view> list) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

// Linear layers of attentions, state-space models and older MLPs that every quantizer takes. The
// compressed projection to keys and values and the narrow in_proj_ba are not here: some loaders
// keep them plain unasked.
bool is_usual(std::string_view last) {
  constexpr std::string_view names[] = {"qkv_proj",
                                        "q_a_proj",
                                        "q_b_proj",
                                        "kv_b_proj",
                                        "in_proj",
                                        "in_proj_qkvz",
                                        "in_proj_qkv",
                                        "in_proj_z",
                                        "out_proj",
                                        "wq_a",
                                        "wq_b",
                                        "wkv",
                                        "wo_a",
                                        "wo_b",
                                        "wq",
                                        "wk",
                                        "wv",
                                        "wo",
                                        "query_key_value",
                                        "dense",
                                        "dense_h_to_4h",
                                        "dense_4h_to_h",
                                        "c_attn",
                                        "c_proj",
                                        "c_fc",
                                        "fc1",
                                        "fc2",
                                        "Wqkv",
                                        "W_pack"};
  return is_one_of(last, names);
}

// Gates, convolutions and tables by their names, and the small parts that choose keys.
bool is_left_alone(std::string_view module) {
  constexpr std::string_view components[] = {"compressor", "indexer_compressor"};
  constexpr std::string_view pieces[] = {"norm",   "conv",   "embed", "embd",
                                         "router", "rotary", "bias"};
  const auto parts = split_dots(module);
  const std::string_view last = parts.back();
  if (last == "wpe" || last == "weights_proj" || last.ends_with("gate")) return true;
  if (std::any_of(parts.begin(), parts.end(),
                  [&](std::string_view part) { return is_one_of(part, components); })) {
    return true;
  }
  return std::any_of(std::begin(pieces), std::end(pieces), [&](std::string_view piece) {
    return last.find(piece) != std::string_view::npos;
  });
}

// A parameter of its own name is no linear layer's weight.
bool is_matrix(const Draft& draft) {
  const TensorInfo* weight = draft.tensor("weight");
  return weight != nullptr && weight->shape.size() == 2 && draft.module.k > 1 &&
         draft.module.n > 1 && weight->name.ends_with(".weight");
}

}  // namespace

TakenMatrices::TakenMatrices(const Inventory& inventory) : inventory_(inventory) {
  for (const Draft& draft : inventory.drafts) {
    const Module& module = draft.module;
    const bool other = module.role == Role::attention_other || module.role == Role::other;
    if (!other || !module.scheme.quantized() || is_prediction(inventory, module)) continue;
    with_codes_.insert(without_numbers(module.name));
  }
}

std::optional<Level> TakenMatrices::level(const Draft& draft, bool named, bool by_family) const {
  const Module& module = draft.module;
  if (module.scheme.quantized() || is_prediction(inventory_, module)) return std::nullopt;
  if (module.role == Role::router) return Level::info;
  if (is_projection(module.role)) return Level::warning;
  const bool other = module.role == Role::attention_other || module.role == Role::other;
  if (!other || !is_matrix(draft) || is_left_alone(module.name)) return std::nullopt;
  if (named || with_codes_.contains(without_numbers(module.name))) return Level::warning;
  if (module.layer < 0) return std::nullopt;
  return !by_family && is_usual(last_component(module.name)) ? Level::warning : Level::info;
}

}  // namespace fewbit
