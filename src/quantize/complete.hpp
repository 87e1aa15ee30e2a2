// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "fewbit/scheme.hpp"

namespace fewbit {

// What `check` calls an error is not rewritten, unless it is only about how a model is run: tensors
// that the model leaves out, biases it does not have, the choice of experts. Reads all scales.
// Error inconsistent (unsupported: a module that can't be read) gives the first such finding and
// their number.
Result<void> check_complete(const Checkpoint& source, const Identified& identified);

// NaN and infinity among tensors that are copied: error corrupt with the first place.
Result<void> check_kept(const Checkpoint& source, const Identified& identified,
                        std::span<const TensorInfo* const> kept);

}  // namespace fewbit
