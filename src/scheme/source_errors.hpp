// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "scheme/validation.hpp"

namespace fewbit {

// What stands against using the weights of a source: the errors of identify(), then those of
// validate() in depth `scales`. What was mapped of a module is released after it. Progress in
// modules; error cancelled when it asks to stop.
Result<std::vector<Finding>> source_errors(const Checkpoint& source, const Identified& identified,
                                           const ValidationProgress& progress);

// The same with warnings and notes, errors among them.
Result<std::vector<Finding>> source_findings(const Checkpoint& source, const Identified& identified,
                                             const ValidationProgress& progress);

// Only the errors and warnings of `findings`.
std::vector<Finding> problems_of(std::span<const Finding> findings);
// Only the errors.
std::vector<Finding> errors_of(std::span<const Finding> findings);

}  // namespace fewbit
