// SPDX-License-Identifier: Apache-2.0
// [w1; w3] to [w3; w1] and back along any dimension, for weights and their scales.
#pragma once

#include <cstdint>

#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// A copy of the tensor with the halves along `dim` exchanged; dim < 0 counts from the end. Whole
// bytes only. Error invalid_argument: no such dimension, an odd extent.
Result<Tensor> swap_halves(const TensorView& tensor, std::int64_t dim);

struct WeightAndScale {
  Tensor weight;
  Tensor scale;
};
// Both along dim, where they must have the same extent (engines split the scale by half the
// weight's extent). Errors as swap_halves, and invalid_argument for different extents.
Result<WeightAndScale> reorder_w1w3_to_w3w1(const TensorView& weight, const TensorView& scale,
                                            std::int64_t dim);

}  // namespace fewbit
