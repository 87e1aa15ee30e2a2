// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "fewbit/checkpoint.hpp"
#include "fewbit/quantize.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit {

// What `fewbit check` finds: nothing is prepared from a checkpoint with errors. Progress in
// modules. Returns the warnings. Errors: inconsistent (the first findings, with both sides),
// cancelled.
Result<std::vector<Finding>> check_source(const Checkpoint& source, const Identified& identified,
                                          const ProgressFn& progress);

}  // namespace fewbit
