// SPDX-License-Identifier: Apache-2.0
// What every preparation checks of the tensors that it is given.
#pragma once

#include <cstdint>
#include <string>

#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// Errors invalid_argument (where: the tensor) for another dtype, device memory, another shape or a
// byte count that does not fit the shape: found and expected.
Result<void> check_tensor(const std::string& where, const TensorView& tensor, DType dtype,
                          const Shape& shape);

// As check_tensor, for scales of one byte; engines also hand them over as plain u8.
Result<void> check_scale_bytes(const std::string& where, const TensorView& tensor, DType dtype,
                               const Shape& shape);

// A size that is 1 to 2^24: far below overflow in every product of two of them.
Result<void> check_extent(const std::string& name, std::int64_t value);

}  // namespace fewbit
