// SPDX-License-Identifier: Apache-2.0
// Biases that exporters write beside every matrix, whether the model has any or not.
#pragma once

#include "fewbit/scheme.hpp"

namespace fewbit {

// Whether the part "bias" is one float a row (of every expert) and all of them are zero: adding it
// changes nothing. False when there is none. Reads the bias.
bool has_zero_bias(const Checkpoint& checkpoint, const Module& module);

}  // namespace fewbit
