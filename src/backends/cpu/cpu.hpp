// SPDX-License-Identifier: Apache-2.0
// One CPU backend in a row for each instruction-set level: same layouts, other kernels. All run any
// activations and plain weights but amx, which multiplies packed weights and bf16 by tiles.
#pragma once

#include "backends/cpu/kernel_table.hpp"
#include "select/backend.hpp"

namespace fewbit {

extern const Backend cpu_amx_backend, cpu_avx512_backend, cpu_avx2_backend, cpu_neon_backend,
    cpu_generic_backend;

namespace cpu {

std::vector<Refusal> moe_refusals(IsaLevel level, const MoeProblem& problem,
                                  const DeviceInfo& device);
std::vector<Refusal> linear_refusals(IsaLevel level, const LinearProblem& problem,
                                     const DeviceInfo& device);
// 2 to 8-bit weights are packed, 16/32-bit weights are verbatim; the same bytes at every level.
Result<MoePlan> plan_moe(const MoeProblem& problem);
Result<void> pack_expert(const MoeProblem& problem, const MoePlan& plan,
                         const ExpertWeights& expert, ExpertSpans to);
Result<ExpertWeights> unpack_expert(const MoeProblem& problem, const MoePlan& plan,
                                    ConstExpertSpans from);
// Error inconsistent: the first difference from the plan of the problem.
Result<void> check_plan(const MoeProblem& problem, const MoePlan& plan);
Result<std::unique_ptr<PreparedMoe>> open_moe(const Kernels& kernels, const MoeProblem& problem,
                                              const MoePlan& plan, PreparedMemory memory);
// Errors: invalid_argument (sizes), limit (memory).
Result<std::unique_ptr<PreparedLinear>> prepare_linear(const Kernels& kernels,
                                                       const LinearProblem& problem,
                                                       const QuantizedTensor& weight,
                                                       Executor& executor);

}  // namespace cpu
}  // namespace fewbit
