// SPDX-License-Identifier: Apache-2.0
// The backend that runs everything fewbit can read, in double, and is never the fastest: last in
// the list, and what the others are compared with.
#pragma once

#include "select/backend.hpp"

namespace fewbit {

extern const Backend reference_backend;

namespace reference {

std::vector<Refusal> moe_refusals(const MoeProblem& problem, const DeviceInfo& device);
std::vector<Refusal> linear_refusals(const LinearProblem& problem, const DeviceInfo& device);
// Every part of the canonical matrices as it is.
Result<MoePlan> plan_moe(const MoeProblem& problem, const ExpertWeights& first);
Result<void> pack_expert(const MoeProblem& problem, const MoePlan& plan,
                         const ExpertWeights& expert, ExpertSpans to);
Result<ExpertWeights> unpack_expert(const MoeProblem& problem, const MoePlan& plan,
                                    ConstExpertSpans from);
// Error inconsistent: a buffer that is no canonical part, bias or global scale.
Result<void> check_plan(const MoeProblem& problem, const MoePlan& plan);
Result<std::unique_ptr<PreparedMoe>> open_moe(const MoeProblem& problem, const MoePlan& plan,
                                              PreparedMemory memory);
Result<std::unique_ptr<PreparedLinear>> prepare_linear(const LinearProblem& problem,
                                                       const QuantizedTensor& weight,
                                                       const DeviceInfo& device,
                                                       Executor& executor);

}  // namespace reference
}  // namespace fewbit
