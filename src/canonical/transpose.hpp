// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fewbit/tensor.hpp"

namespace fewbit {

// [a, b] of whole-byte elements to [b, a], in memory of its own. Error limit.
Result<Tensor> transposed_copy(const Tensor& tensor);

}  // namespace fewbit
