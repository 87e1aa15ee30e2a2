// SPDX-License-Identifier: Apache-2.0
// Offsets of groups that are no numbers.
#include <fmt/format.h>

#include "scheme/scale_values.hpp"
#include "scheme/validation.hpp"

namespace fewbit {

void validate_affine(Validation& validation, const Module& module) {
  const TensorInfo* biases = validation.checkpoint.find(module.part("biases"));
  if (biases == nullptr || validation.depth == Depth::headers) return;
  const Tensor tensor = validation.checkpoint.tensor(*biases);
  const auto counts = count_scale_values(biases->dtype, tensor.view.bytes);
  validation.checkpoint.release(*biases);
  if (!counts || counts->not_finite == 0) return;
  validation.add(module, Level::error, "zeros-value", biases->name,
                 fmt::format("{} of {} are NaN or infinite", counts->not_finite, counts->values),
                 "finite offsets of the groups", double(counts->not_finite));
}

}  // namespace fewbit
