// SPDX-License-Identifier: Apache-2.0
// Experts of integers as Marlin kernels read them: tiles, scales in the kernels' order, zero
// points, biases, act-order.
#pragma once

#include "select/backend.hpp"

namespace fewbit::foreign {

// Error unsupported: weights that have no form here, or not one form for both matrices.
Result<void> check_marlin(const MoeProblem& problem);
Result<MoePlan> plan_marlin_experts(const MoeProblem& problem, const ExpertWeights& first);
Result<void> pack_marlin_expert(const MoeProblem& problem, const MoePlan& plan,
                                const ExpertWeights& expert, ExpertSpans to);

}  // namespace fewbit::foreign
