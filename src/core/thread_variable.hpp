// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "fewbit/result.hpp"

namespace fewbit {

// FEWBIT_THREADS, a number from 1 to 1024; empty when it is not set. Error invalid_argument, where
// = the variable.
Result<std::optional<int>> threads_by_variable();

}  // namespace fewbit
