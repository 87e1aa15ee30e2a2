// SPDX-License-Identifier: Apache-2.0
// Biases beside matrices.
#include <fmt/format.h>

#include "core/float_types.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/part_of_model.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

Shape bias_shape(const Validation& validation, const Module& module) {
  if (module.experts > 0) return {module.experts, module.n};
  const TensorInfo* weight = validation.checkpoint.find(module.part("weight"));
  // The kernel of a convolution begins with its outputs.
  const bool kernel = weight != nullptr && !module.scheme.quantized() && weight->shape.size() > 2;
  return {kernel ? weight->shape.front() : module.n};
}

// Heads of encoders and routers have biases of their own, projections do not.
void check_alone(Validation& validation, const Module& module) {
  if (module.parts.size() != 1 || !module.parts.front().tensor.ends_with(".bias")) return;
  const std::string_view last = split_dots(module.name).back();
  if (module.layer < 0 || module.expert != -1 || !last.ends_with("_proj") ||
      is_part_of_model(validation.checkpoint))
    return;
  validation.add(module, Level::warning, "tensor-missing", module.parts.front().tensor,
                 "a bias alone", "a weight beside it");
}

void check_bias(Validation& validation, const Module& module) {
  const TensorInfo* bias = validation.checkpoint.find(module.part("bias"));
  if (bias == nullptr || module.n < 1 || module.k < 1 || !module.unreadable.empty()) return;
  if (!is_projection(module.role) && module.role != Role::attention_other) return;
  const Shape expected = bias_shape(validation, module);
  if (bias->shape != expected) {
    validation.add(module, Level::error, "bias-shape", bias->name, shape_text(bias->shape),
                   shape_text(expected) + ", one value a row of the matrix");
  }
  if (!is_16_or_32_bit_float(bias->dtype)) {
    validation.add(module, Level::error, "bias-dtype", bias->name,
                   std::string(dtype_name(bias->dtype)), "f32, bf16 or f16");
  }
}

}  // namespace

void validate_biases(Validation& validation) {
  for (const Module& module : validation.identified.modules) {
    check_bias(validation, module);
    check_alone(validation, module);
  }
}

}  // namespace fewbit
