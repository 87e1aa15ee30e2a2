// SPDX-License-Identifier: Apache-2.0
// How far a backend may be from the formulas in double.
#pragma once

#include <vector>

#include "backends/reference/moe_reference.hpp"

namespace fewbit::test {

// Largest difference from `reference` (MoeRounding::none) that rounding the activated row and the
// output to problem.activation_dtype, both once, can make; element by element, [T, H].
Result<std::vector<double>> rounding_bound(const MoeProblem& problem, const MoeWeights& weights,
                                           const MoeReferenceInput& input,
                                           const MoeReferenceResult& reference);

}  // namespace fewbit::test
