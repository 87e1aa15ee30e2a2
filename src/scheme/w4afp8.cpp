// SPDX-License-Identifier: Apache-2.0
// quant_method "w4afp8", of SGLang's releases: experts of signed 4-bit codes, two columns a byte
// [n, k/2] with the even one in the low half, and a scale a group of 128 columns [n, k/128] that is
// called weight_scale_inv and multiplies. All else is FP8 in blocks, which the reader of FP8 takes.
#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "core/ascii.hpp"
#include "core/checked.hpp"
#include "core/float_types.hpp"
#include "scheme/reader.hpp"
#include "scheme/scale_fit.hpp"
#include "scheme/scale_parts.hpp"

namespace fewbit {
namespace {

std::string text(const TensorInfo& info) {
  return fmt::format("{} {}", dtype_name(info.dtype), shape_text(info.shape));
}

// Sets the scheme's scale and the sizes, or says why it can't.
std::string read(Draft& draft, const TensorInfo& weight, Scheme& scheme) {
  const std::vector<std::string_view> names = scale_parts(draft.module);
  if (names.size() != 1) {
    return fmt::format("W4AFP8 codes {} with {} scales, expected one", text(weight), names.size());
  }
  if (std::string part = unapplied_text(draft, "W4AFP8", names); !part.empty()) return part;
  const TensorInfo& scale = *draft.tensor(names.front());
  Module& module = draft.module;
  module.n = weight.shape.front();
  module.k = checked_mul(weight.shape.back(), std::int64_t{2}).value_or(0);
  const bool matrix = weight.shape.size() == 2 && module.n > 0 && module.k > 0;
  const std::int64_t groups = scale.shape.empty() ? 0 : scale.shape.back();
  const bool rows = scale.shape.size() == 2 && scale.shape.front() == module.n && groups > 0;
  if (!matrix || !rows || module.k % groups != 0 || !is_16_or_32_bit_float(scale.dtype)) {
    return fmt::format(
        "W4AFP8 codes {} with {} {}, expected two codes a byte with a float a group "
        "of columns, of 128: {}",
        text(weight), names.front(), text(scale), group_scales_text(0, module.n, module.k, 128));
  }
  scheme.scale = ScaleSpec{scale.dtype, {1, module.k / groups}, false, ScaleDirection::multiply};
  return "";
}

}  // namespace

void claim_w4afp8(Inventory& inventory) {
  const Declaration* first = inventory.declared.first();
  if (first == nullptr || lower_ascii(first->method) != "w4afp8") return;
  for (Draft& draft : inventory.drafts) {
    const TensorInfo* weight = draft.tensor("weight");
    const bool bytes =
        weight != nullptr && (weight->dtype == DType::i8 || weight->dtype == DType::u8);
    if (draft.claimed || !bytes || weight->shape.empty()) continue;
    Scheme scheme;
    scheme.producer = Producer::fp8;
    scheme.weight = DType::i4;
    scheme.packing = Packing::nibbles_k;
    scheme.activation = DType::f8_e4m3;
    std::string obstacle = read(draft, *weight, scheme);
    if (obstacle.empty()) {
      draft.claim(scheme);
    } else {
      draft.refuse(scheme, std::move(obstacle));
    }
  }
}

}  // namespace fewbit
