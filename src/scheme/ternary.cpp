// SPDX-License-Identifier: Apache-2.0
// BitNet: codes 0, 1, 2 for -1, 0, 1, four rows a byte, divided by one scale.
#include <fmt/format.h>

#include "checkpoint/json_text.hpp"
#include "core/ascii.hpp"
#include "core/checked.hpp"
#include "core/float_types.hpp"
#include "core/quote.hpp"
#include "scheme/config_word.hpp"
#include "scheme/reader.hpp"

namespace fewbit {
namespace {

// Of the block that says bitnet; empty when it does not.
std::string linear_class(const Declared& declared) {
  for (const Declaration& one : declared.all) {
    if (one.producer != Producer::ternary) continue;
    const Json* value = one.block->find("linear_class");
    if (is_odd_word(value)) return value_text(*value);
    if (const std::string* name = word_of(value)) return lower_ascii(*name);
  }
  return "";
}

std::string obstacle_of(const Draft& draft, const std::string& layer) {
  const TensorInfo& weight = *draft.tensor("weight");
  const TensorInfo& scale = *draft.tensor("weight_scale");
  if (!layer.empty() && layer != "bitlinear") {
    return fmt::format("BitNet with linear_class {}: whether its scale divides is not known",
                       quote(layer));
  }
  if (weight.shape.size() != 2 || draft.module.n < 1 || draft.module.k < 1) {
    return fmt::format("BitNet codes of shape {}, expected [rows / 4, columns]",
                       shape_text(weight.shape));
  }
  const auto elements = shape_elements(scale.shape);
  const bool one = elements && *elements == 1;
  constexpr std::string_view applied[] = {"weight_scale"};
  if (one && is_16_or_32_bit_float(scale.dtype)) return unapplied_text(draft, "BitNet", applied);
  return fmt::format("weight_scale is {} {}, expected one f32, bf16 or f16",
                     dtype_name(scale.dtype), shape_text(scale.shape));
}

}  // namespace

void claim_ternary(Inventory& inventory) {
  if (!inventory.declared.says(Producer::ternary)) return;
  const std::string layer = linear_class(inventory.declared);
  for (Draft& draft : inventory.drafts) {
    const TensorInfo* weight = draft.tensor("weight");
    if (draft.claimed || weight == nullptr || weight->dtype != DType::u8) continue;
    if (!draft.has("weight_scale")) continue;
    if (weight->shape.size() == 2) {
      draft.module.n = checked_mul(weight->shape[0], std::int64_t{4}).value_or(0);
      draft.module.k = weight->shape[1];
    }
    Scheme scheme;
    scheme.producer = Producer::ternary;
    scheme.weight = DType::u2;
    scheme.packing = Packing::quarters_n;
    scheme.zero_point = 1;
    // Stored as a divisor of any float type; the canonical factor is its reciprocal.
    scheme.scale = ScaleSpec{DType::f32, Granularity{0, 0}, false, ScaleDirection::multiply};
    scheme.activation = DType::i8;
    std::string obstacle = obstacle_of(draft, layer);
    if (obstacle.empty()) {
      draft.claim(scheme);
    } else {
      draft.refuse(scheme, std::move(obstacle));
    }
  }
}

}  // namespace fewbit
