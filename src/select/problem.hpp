// SPDX-License-Identifier: Apache-2.0
// Whether a problem makes sense, and whether weights are the ones that it speaks of: checked once,
// before any backend.
#pragma once

#include "fewbit/linear.hpp"
#include "fewbit/quantized.hpp"
#include "fewbit/selection.hpp"

namespace fewbit {

// Errors invalid_argument: a size below 1, activation parameters that the activation has no use
// for (they would be ignored silently) or that aren't finite.
Result<void> check_problem(const MoeProblem& problem);
Result<void> check_problem(const LinearProblem& problem);

// Errors invalid_argument, with both numbers: number of experts, shapes, schemes, a gate missing or
// too many, tensors of other sizes.
Result<void> check_weights(const MoeProblem& problem, const MoeWeights& weights);
// One expert of the layer, `where` for messages.
Result<void> check_expert(const MoeProblem& problem, const std::string& where,
                          const ExpertWeights& expert);
Result<void> check_weights(const LinearProblem& problem, const QuantizedTensor& weight);

}  // namespace fewbit
