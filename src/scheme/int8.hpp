// SPDX-License-Identifier: Apache-2.0
// I8 codes [n, k] with scales, and perhaps zero points, beside them.
#pragma once

#include "scheme/reader.hpp"

namespace fewbit {

// What a config says of integer weights, as far as tensors can't.
struct IntegerOptions {
  std::optional<int> bits;
  std::optional<std::int64_t> group_size;
  ActOrder act_order = ActOrder::none;
  std::optional<bool> symmetric;
  std::optional<DType> activation;
};

// Claims the draft, or refuses it with what does not fit.
void claim_int8(const Inventory& inventory, Draft& draft, Producer producer,
                const IntegerOptions& options);

}  // namespace fewbit
