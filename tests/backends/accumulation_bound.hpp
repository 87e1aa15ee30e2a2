// SPDX-License-Identifier: Apache-2.0
// How far f32 sums may move the output of a MoE layer.
#pragma once

#include <vector>

#include "backends/moe_case.hpp"

namespace fewbit::test {

// Largest difference that sums of n products rounded n times in f32, a rounding of each product and
// a few of each activation can make: element by element, on top of rounding_bound.
//   fc1        (k + 4) 2^-24 sum |w x| on gate and up
//   activated  its slope times that, and 16 2^-24 |gate (up + beta)| for the formula itself
//   fc2        |w| of that, and (k + 4) 2^-24 sum |w a|
//   out        (top_k + 1) 2^-24 of the sum of the routes' magnitudes
std::vector<double> accumulation_bound(const MoeProblem& problem, const MoeWeights& weights,
                                       const Call& call, const MoeReferenceResult& reference);

}  // namespace fewbit::test
