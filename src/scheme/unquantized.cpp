// SPDX-License-Identifier: Apache-2.0
// Modules stored as plain 16/32-bit values.
#include <algorithm>
#include <utility>

#include "core/float_types.hpp"
#include "scheme/fused_experts.hpp"
#include "scheme/gguf_roles.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

// Tables that are no weights: position ids, token-to-expert tables, masks. Integers in place of a
// layer's weight are codes.
bool is_plain_table(const Draft& draft, const TensorInfo& info) {
  if (is_projection(draft.module.role) && draft.tensor("weight") == &info) return false;
  if (info.dtype == DType::i32) return is_table(draft.module.name);
  return info.dtype == DType::i64 || info.dtype == DType::boolean;
}

// Of linear layers and experts, whatever stands before: "mlp.experts", "ffn_up_exps", "q_proj".
bool is_of_a_matrix(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return last == "experts" || last.ends_with("_exps") || last.ends_with("_proj");
}

// A lone "scale" is the own parameter of a norm, a layer or Gemma's router, whose matrix is in
// "router.proj"; not a quantization scale.
bool is_lone_scale(const Draft& draft) {
  const Role role = draft.module.role;
  const bool has_one = role == Role::norm || role == Role::other ||
                       (role == Role::router && draft.module.name.ends_with(".router"));
  return has_one && !is_of_a_matrix(draft.module.name) && draft.tensors.size() == 1 &&
         draft.module.parts.front().suffix == "scale" &&
         is_plain_float(draft.tensors.front()->dtype);
}

bool is_left_over(std::string_view suffix) {
  return is_activation_scale(suffix) || suffix == "weight_scale_inv";
}

bool is_unquantized(const Draft& draft) {
  if (is_lone_scale(draft)) return true;
  const TensorInfo* weight = draft.tensor("weight");
  for (std::size_t i = 0; i < draft.tensors.size(); ++i) {
    const std::string& suffix = draft.module.parts[i].suffix;
    // An activation scale beside a plain weight says nothing about the weight; a weight's own scale
    // is a left-over of FP8, which validate() reports.
    if (weight != nullptr && is_plain_float(weight->dtype) && is_left_over(suffix)) continue;
    // Of a GGUF file that was decoded.
    if (suffix == "scale" && has_gemma4_scale(draft.module.name)) continue;
    if (is_quantization_suffix(suffix)) return false;
    const bool table = is_plain_table(draft, *draft.tensors[i]) || suffix == "output_zero_point";
    if (!is_plain_float(draft.tensors[i]->dtype) && !table) return false;
  }
  return true;
}

void set_sizes(Draft& draft, const TensorInfo& main) {
  Module& module = draft.module;
  const Shape& shape = main.shape;
  if (shape.size() == 1) module.n = shape[0];
  if (shape.size() >= 2) {
    module.n = shape[shape.size() - 2];
    module.k = shape[shape.size() - 1];
  }
  if (module.expert == all_experts && shape.size() == 3) module.experts = shape[0];
}

void set_order(const Inventory& inventory, Module& module, const Shape& shape) {
  FusedOrder order = fused_order(inventory, module, shape);
  module.unreadable = std::move(order.obstacle);
  module.transposed = order.transposed;
  module.alternating = order.alternating;
  if (order.transposed) std::swap(module.n, module.k);
}

// A bias, a key scale: what stands alone is no matrix of the experts or the attention that its name
// speaks of.
void set_bias_role(Module& module) {
  if (is_projection(module.role)) module.role = Role::other;
  module.expert = -1;
}

// Bytes as the only tensor of an attention: "self_attn.bias", "attn.masked_bias", "attn.mask".
bool is_mask(const Draft& draft) {
  if (draft.tensors.size() != 1) return false;
  const DType dtype = draft.tensors.front()->dtype;
  if (dtype != DType::u8 && dtype != DType::boolean) return false;
  const std::string& suffix = draft.module.parts.front().suffix;
  const std::string_view name = draft.module.name;
  const std::string_view last = name.substr(name.rfind('.') + 1);
  constexpr std::string_view masks[] = {"masked_bias", "mask", "attn_mask", "attention_mask",
                                        "causal_mask"};
  return suffix == "bias" || (suffix == "weight" && std::find(std::begin(masks), std::end(masks),
                                                              last) != std::end(masks));
}

}  // namespace

void claim_masks(Inventory& inventory) {
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || !is_mask(draft)) continue;
    set_sizes(draft, *draft.tensors.front());
    draft.claim(plain_scheme(draft.tensors.front()->dtype));
  }
}

void claim_unquantized(Inventory& inventory) {
  for (Draft& draft : inventory.drafts) {
    if (draft.claimed || !is_unquantized(draft)) continue;
    const TensorInfo* weight = draft.tensor("weight");
    const TensorInfo& main = weight != nullptr ? *weight : *draft.tensors.front();
    set_sizes(draft, main);
    draft.claim(plain_scheme(main.dtype));
    if (weight == nullptr) {
      set_bias_role(draft.module);
    } else if (draft.module.expert == all_experts) {
      set_order(inventory, draft.module, main.shape);
    }
  }
}

}  // namespace fewbit
