// SPDX-License-Identifier: Apache-2.0
// Values of weights that are stored as plain numbers, and of biases.
#pragma once

#include <cstdint>
#include <optional>

#include "fewbit/scheme.hpp"

namespace fewbit {

// The first of the module's plain tensors (weight, bias) with NaN or infinity: an error
// `weight-nan` with their number and the first place. Masks may hold infinity, lone vectors of
// attention too.
struct PlainValueFault {
  Finding finding;
  std::uint64_t count = 0;  // of bad values
};
std::optional<PlainValueFault> plain_value_fault(const Checkpoint& checkpoint,
                                                 const Module& module);

}  // namespace fewbit
