// SPDX-License-Identifier: Apache-2.0
// One global scale for gate and up, where that is possible without changing a weight.
#pragma once

#include <optional>

#include "fewbit/quantized.hpp"

namespace fewbit {

// A global scale g for two NVFP4 matrices such that every block scale s of either has another e4m3
// value s' with s' * g = s * its own global scale, exactly: theirs when it is one already, else one
// of theirs times a power of two. Empty: there is none. Reads the block scales when they differ.
std::optional<float> one_global(const QuantizedTensor& a, const QuantizedTensor& b);

// Whether one_global() of gate and up is empty; false without a gate or a global scale.
bool keeps_two_globals(const ExpertWeights& expert);

// The expert with one global scale for gate and up and the same weights; what was so stays a view.
// Error unsupported: keeps_two_globals (both scales).
Result<ExpertWeights> with_one_global(const ExpertWeights& expert);

}  // namespace fewbit
