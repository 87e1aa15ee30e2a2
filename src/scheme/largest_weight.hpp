// SPDX-License-Identifier: Apache-2.0
// The largest weight that a matrix really has, where the largest that its codes could make is none
// that f32 holds.
#pragma once

#include <optional>

#include "fewbit/checkpoint.hpp"
#include "fewbit/scheme.hpp"

namespace fewbit {

// Of 4-bit and 8-bit floats in rows, with a grid of scales beside them and a factor for all; reads
// all codes. Empty for other storages, and where f32 does not hold a scale times the factor.
std::optional<double> largest_stored_weight(const Checkpoint& checkpoint, const Module& module,
                                            DType scale_type, double factor);

}  // namespace fewbit
