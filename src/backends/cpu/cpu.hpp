// SPDX-License-Identifier: Apache-2.0
// One CPU backend in a row for each instruction-set level: same rules, layouts and run, other
// kernels.
#pragma once

#include "select/backend.hpp"

namespace fewbit {

extern const Backend cpu_avx512_backend, cpu_avx2_backend, cpu_generic_backend;

namespace cpu {

std::vector<Refusal> moe_refusals(IsaLevel level, const MoeProblem& problem,
                                  const DeviceInfo& device);
std::vector<Refusal> linear_refusals(IsaLevel level, const LinearProblem& problem,
                                     const DeviceInfo& device);
// e2m1 weights are packed expert by expert into one allocation, 16/32-bit weights are read in place
// and their owners kept. Errors: invalid_argument (sizes), limit (memory).
Result<std::unique_ptr<PreparedMoe>> prepare_moe(IsaLevel level, const MoeProblem& problem,
                                                 const MoeWeights& weights, Executor& executor);
Result<std::unique_ptr<PreparedLinear>> prepare_linear(IsaLevel level, const LinearProblem& problem,
                                                       const QuantizedTensor& weight,
                                                       Executor& executor);

}  // namespace cpu
}  // namespace fewbit
