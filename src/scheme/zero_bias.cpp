// SPDX-License-Identifier: Apache-2.0
#include "scheme/zero_bias.hpp"

#include <algorithm>
#include <vector>

#include "core/convert.hpp"
#include "core/float_types.hpp"
#include "scheme/passing_tensor.hpp"

namespace fewbit {

bool has_zero_bias(const Checkpoint& checkpoint, const Module& module) {
  const TensorInfo* bias = checkpoint.find(module.part("bias"));
  if (bias == nullptr || module.n < 1) return false;
  const Shape expected = module.experts > 0 ? Shape{module.experts, module.n} : Shape{module.n};
  if (bias->shape != expected || !is_16_or_32_bit_float(bias->dtype)) return false;
  const std::size_t width = static_cast<std::size_t>(dtype_bits(bias->dtype)) / 8;
  std::vector<float> values(bias->bytes / width);
  const PassingTensor tensor(checkpoint, *bias);
  const auto read = convert_to_f32(bias->dtype, tensor.bytes(), values);
  return read && std::all_of(values.begin(), values.end(), [](float x) { return x == 0.0F; });
}

}  // namespace fewbit
