// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fewbit/scheme.hpp"

namespace fewbit {

// A checkpoint that lacks tensors, or has them in other shapes than its config says, is not worth
// rewriting. Error inconsistent gives the first such finding of validate() and their number.
Result<void> check_complete(const Checkpoint& source, const Identified& identified);

}  // namespace fewbit
