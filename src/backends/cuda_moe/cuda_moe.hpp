// SPDX-License-Identifier: Apache-2.0
// MoE layers of f4_e2m1, integer and f8_e4m3 experts on a CUDA device, in the steps of a backend.
#pragma once

#include "backends/cuda_moe/grouped_plan.hpp"
#include "layout/place.hpp"
#include "select/backend.hpp"

namespace fewbit {

extern const Backend cuda_moe_backend;

namespace cuda {

// Whether there are kernels for the device; adds what is wrong with it.
bool check_device(const DeviceInfo& device, std::vector<Refusal>& refusals);
std::vector<Refusal> moe_refusals(const MoeProblem& problem, const DeviceInfo& device);

// The kernels' words for a layer that was not refused.
CellFormat format_of(const MoeProblem& problem);
bool has_row_scales(const MoeProblem& problem);
MoeF4Rule rule_of(const MoeProblem& problem);
// What the kernels take: bf16, and f16 where takes_f16().
void check_activations(DType dtype, const std::optional<CellFormat>& format,
                       std::vector<Refusal>& refusals);
ActivationType activation_type(DType dtype);
OutType out_type(DType dtype);
StreamShape shape_of(const MoeProblem& problem, std::int64_t tokens);
// Of the halves of fc1 and fc2.
Dims half1(const MoeProblem& problem);
Dims half2(const MoeProblem& problem);

Result<MoePlan> plan_moe(const MoeProblem& problem);
Result<void> pack_expert(const MoeProblem& problem, const MoePlan& plan,
                         const ExpertWeights& expert, ExpertSpans to);
// Error inconsistent: the first difference from the plan of the problem.
Result<void> check_plan(const MoeProblem& problem, const MoePlan& plan);
Result<std::unique_ptr<PreparedMoe>> open_moe(const MoeProblem& problem, const MoePlan& plan,
                                              PreparedMemory memory);
// Packs on the device, one expert's rows beside what is prepared.
Result<std::unique_ptr<PreparedMoe>> prepare_on_device(const MoeProblem& problem,
                                                       const MoeWeights& weights);

}  // namespace cuda
}  // namespace fewbit
