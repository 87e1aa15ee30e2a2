// SPDX-License-Identifier: Apache-2.0
// What a tensor's name says: its module, its suffix, its role in the model.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fewbit/scheme.hpp"

namespace fewbit {

// "model.layers.3.mlp.experts.7.up_proj.weight_scale" -> module "…up_proj", suffix "weight_scale".
// Fused experts also carry their suffix after an underscore ("experts.down_proj_weight_scale"), or
// none; a tensor without a known suffix is the "weight" of a module with its own name.
struct TensorName {
  std::string module;
  std::string suffix;
};
TensorName split_tensor_name(std::string_view name);

// Whether a suffix belongs to quantized storage (scales, zero points, packed codes …), and not to
// plain weights, biases or key/value scales.
bool is_quantization_suffix(std::string_view suffix);
// Scales, ranges and zero points of quantized activations under all names that producers give them:
// they say nothing of the weights.
bool is_activation_suffix(std::string_view suffix);
// Those of them that are a scale of the inputs.
bool is_activation_scale(std::string_view suffix);
// Whether a suffix holds the codes or values of the matrix itself.
bool is_weight_suffix(std::string_view suffix);
bool has_weight(const Module& module);

// Expert number of a module that holds all experts in one tensor, as Module::expert.
inline constexpr int all_experts = -2;

// What the experts of such a module are called where each has its own: "mlp.experts.0.down_proj" …
// Empty for any other, or where no part is called "experts".
std::vector<std::string> names_of_experts(const Module& module);

struct ModuleRole {
  Role role = Role::other;
  int layer = -1;
  int expert = -1;
};
// From the module's name alone, for every family that fewbit knows: any prefix before
// "layers.<int>." is accepted. Parts of vision and audio towers are `other`; parts of
// token-prediction heads beside the layers have a role and an expert, but no layer.
ModuleRole find_role(std::string_view module);

// Roles of matrices that activations are multiplied by, so that quantizers change them; experts'
// routers and output heads too, other attention parts and lone factors not.
bool is_projection(Role role);

// Factors of layers, heads and experts: a part of a name that is a model's own, no quantizer's.
bool is_models_own_scale(std::string_view part);

// Tables that are in models of every kind, and are no weights: position ids, experts by token.
bool is_table(std::string_view module);

// Parts of vision and audio towers and of token-prediction heads beside the layers.
bool outside_language_model(std::string_view module);

// Which layer of which part of a model: "layers.3" of "model.layers.3.mlp.gate",
// "talker.model.layers.3" of "talker.model.layers.3.mlp.gate"; the whole name without a number.
std::string layer_path(std::string_view module);

// A part that is a number: of a layer or an expert.
std::optional<int> name_number(std::string_view part);

std::vector<std::string_view> split_dots(std::string_view name);
// "up_proj" of "mlp.up_proj".
inline std::string_view last_component(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // no dot: npos + 1 is 0
}
// "layers.#.mlp.experts.#.up_proj": alike in all layers and of all experts.
std::string without_numbers(std::string_view name);

}  // namespace fewbit
