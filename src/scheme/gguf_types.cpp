// SPDX-License-Identifier: Apache-2.0
// Modules of GGUF files: blocks that hold their own scales, plain numbers, and the factors that
// stand beside NVFP4 blocks.
#include "checkpoint/gguf_types.hpp"

#include <fmt/format.h>

#include "scheme/gguf_roles.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

// PrismML's 128-element blocks under mainline's id have the layout of its later type of that id.
constexpr std::int32_t q2_0 = 42;
constexpr std::int32_t pq2_0 = 142;

Scheme gguf_scheme(const BlockFormat& blocks) {
  Scheme scheme;
  scheme.producer = Producer::gguf;
  scheme.weight = DType::u8;
  scheme.packing = Packing::ggml;
  const bool wide_q2_0 = blocks.ggml_type == q2_0 && blocks.block_elements == 128;
  scheme.ggml_type = wide_q2_0 ? pq2_0 : blocks.ggml_type;
  return scheme;
}

// Why the blocks can't be decoded; empty when they can.
std::string obstacle(const BlockFormat& blocks) {
  const GgufType* type = find_gguf_type(blocks.ggml_type, blocks.block_elements);
  const std::string name = gguf_type_name(blocks.ggml_type, blocks.block_elements);
  if (type == nullptr || type->elements == 0) return fmt::format("{}: unknown blocks", name);
  if (gguf_types_of(type->id).front().elements != type->elements && type->id != q2_0) {
    return fmt::format("{}: a private type under the id of {}", name,
                       gguf_types_of(type->id).front().name);
  }
  return "";
}

// Scales under names that no reader of GGUF applies; empty when there are none.
std::string foreign_scale(const Draft& draft) {
  if (draft.has("scale") && draft.has("weight.scale")) return "two factors: scale and weight.scale";
  for (const Module::Part& part : draft.module.parts) {
    const bool own = part.suffix == "scale" || part.suffix == "weight.scale";
    if (own || part.suffix.starts_with("input") || !is_quantization_suffix(part.suffix)) continue;
    return fmt::format("{} beside the blocks, which nothing applies; a factor is named scale",
                       part.tensor);
  }
  return "";
}

// Blocks in more than two dimensions are that many matrices: of experts, or of attention heads
// (attn_k_b, attn_v_b).
void set_sizes(Module& module, const TensorInfo& info) {
  const Shape& shape = shape_in_elements(info);
  module.n = shape.size() == 1 ? shape[0] : shape[shape.size() - 2];
  module.k = shape.size() == 1 ? 0 : shape.back();
  if (shape.size() == 3) module.experts = shape[0];
  // No product overflows: the elements of a tensor are counted.
  if (shape.size() == 4 && info.blocks) module.experts = shape[0] * shape[1];
}

// `own_scale`: the architecture has scales of its own.
void claim(Draft& draft, bool own_scale) {
  const TensorInfo* weight = draft.tensor("weight");
  const TensorInfo& main = weight != nullptr ? *weight : *draft.tensors.front();
  set_sizes(draft.module, main);
  draft.claim(main.blocks ? gguf_scheme(*main.blocks) : plain_scheme(main.dtype));
  draft.module.evidence.clear();
  for (std::size_t i = 0; i < draft.tensors.size(); ++i) {
    draft.module.evidence += fmt::format(
        "{}{} {} {}", i == 0 ? "" : " + ", draft.module.parts[i].suffix,
        stored_type_name(*draft.tensors[i]), shape_text(shape_in_elements(*draft.tensors[i])));
  }
  if (main.blocks) draft.module.unreadable = obstacle(*main.blocks);
  if (main.blocks && main.blocks->shape.size() == 1 && draft.module.unreadable.empty()) {
    draft.module.unreadable =
        fmt::format("blocks of shape {}, expected a matrix", shape_text(main.blocks->shape));
  }
  if (draft.module.unreadable.empty()) draft.module.unreadable = foreign_scale(draft);
  const bool factor = draft.has("weight.scale") || (draft.has("scale") && !own_scale);
  if (!main.blocks && factor) {
    draft.module.unreadable = "a factor beside plain weights: " + draft.module.evidence;
  }
  if (draft.module.expert == all_experts && shape_in_elements(main).size() != 3 &&
      weight != nullptr) {
    draft.module.unreadable = fmt::format("stacked experts of shape {}, expected 3 dimensions",
                                          shape_text(shape_in_elements(main)));
  }
}

}  // namespace

void claim_gguf(Inventory& inventory) {
  if (!inventory.gguf) return;
  const bool gemma4 = inventory.model_type.starts_with("gemma4");
  for (Draft& draft : inventory.drafts) {
    const bool only_factors =
        draft.tensor("weight") == nullptr && (draft.has("scale") || draft.has("weight.scale"));
    if (!draft.claimed && !only_factors) {
      claim(draft, gemma4 && has_gemma4_scale(draft.module.name));
    }
  }
}

}  // namespace fewbit
