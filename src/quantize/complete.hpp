// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "fewbit/scheme.hpp"

namespace fewbit {

// What `check` calls an error is not rewritten, unless it is only about how a model is run: tensors
// that the model leaves out, biases it does not have, the choice of experts. Reads all scales.
// Error inconsistent (unsupported: a module that can't be read) gives the first such finding and
// their number. The value is the error of scales that are no numbers: decoding refuses those
// itself, with the place of a weight; who gets to its end all the same returns it then.
Result<std::optional<Error>> check_complete(const Checkpoint& source, const Identified& identified);

// NaN and infinity among tensors that are copied: error corrupt with the first place.
Result<void> check_kept(const Checkpoint& source, const Identified& identified,
                        std::span<const TensorInfo* const> kept);

}  // namespace fewbit
