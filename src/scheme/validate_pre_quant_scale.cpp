// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "core/convert.hpp"
#include "scheme/passing_tensor.hpp"
#include "scheme/validation.hpp"

namespace fewbit {

void validate_pre_quant_scale(Validation& validation, const Module& module) {
  const TensorInfo* scale = validation.checkpoint.find(module.part("pre_quant_scale"));
  if (scale == nullptr) return;
  const Shape one = {module.k};
  const Shape all = {module.experts, module.k};
  if (scale->shape != one && !(module.experts > 0 && scale->shape == all)) {
    validation.add(module, Level::error, "pre-quant-scale-shape", scale->name,
                   shape_text(scale->shape), shape_text(one));
    return;
  }
  const DType dtype = scale->dtype;
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) {
    validation.add(module, Level::error, "pre-quant-scale-dtype", scale->name,
                   std::string(dtype_name(dtype)), "f32, f16 or bf16");
    return;
  }
  if (validation.depth < Depth::scales) return;
  const PassingTensor tensor(validation.checkpoint, *scale);
  std::vector<float> values(tensor.bytes().size() * 8 /
                            static_cast<std::size_t>(dtype_bits(dtype)));
  if (!convert_to_f32(dtype, tensor.bytes(), values)) return;
  std::int64_t bad = 0;
  for (const float value : values) bad += std::isfinite(value) && value > 0.0F ? 0 : 1;
  if (bad == 0) return;
  validation.add(module, Level::error, "pre-quant-scale-value", scale->name,
                 fmt::format("{} of {} are not above zero and finite", bad, values.size()),
                 "finite numbers above zero", double(bad));
}

}  // namespace fewbit
