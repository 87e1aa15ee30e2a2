// SPDX-License-Identifier: Apache-2.0
// Dense layers by the kernels of experts: the only expert's down, which every token goes to.
#pragma once

#include "backends/cuda_moe/cuda_moe.hpp"

namespace fewbit::cuda {

std::vector<Refusal> linear_refusals(const LinearProblem& problem, const DeviceInfo& device);
Result<std::unique_ptr<PreparedLinear>> prepare_linear(const LinearProblem& problem,
                                                       const QuantizedTensor& weight,
                                                       const DeviceInfo& device,
                                                       Executor& executor);

// The layer whose down the matrix is.
MoeProblem moe_problem_of(const LinearProblem& problem);

}  // namespace fewbit::cuda
