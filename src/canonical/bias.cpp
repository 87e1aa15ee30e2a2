// SPDX-License-Identifier: Apache-2.0
// Biases beside the matrices of experts.
#include <fmt/format.h>

#include "canonical/storage.hpp"
#include "core/convert.hpp"

namespace fewbit {

Result<std::vector<float>> read_bias(const Checkpoint& checkpoint, const Module& module,
                                     std::int64_t fused_expert) {
  std::vector<float> values;
  if (module.part("bias").empty()) return values;
  const std::string name(module.part("bias"));
  FEWBIT_TRY(Tensor bias, part_tensor(checkpoint, module, "bias"));
  const Shape expected = fused_expert < 0 ? Shape{module.n} : Shape{module.experts, module.n};
  if (bias.view.shape != expected) {
    return Error{
        ErrorCode::corrupt,
        fmt::format("shape is {}, expected {}", shape_text(bias.view.shape), shape_text(expected)),
        name};
  }
  const DType dtype = bias.view.dtype;
  if (dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16) {
    return Error{ErrorCode::corrupt,
                 fmt::format("dtype is {}, expected f32, bf16 or f16", dtype_name(dtype)), name};
  }
  if (fused_expert >= 0) bias = first_dim_slice(bias, fused_expert);
  values.resize(static_cast<std::size_t>(module.n));
  FEWBIT_TRY(convert_to_f32(dtype, bias.view.bytes, values));
  return values;
}

}  // namespace fewbit
