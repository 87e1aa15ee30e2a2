// SPDX-License-Identifier: Apache-2.0
// 4-bit integer experts for vLLM's CPU and XPU kernels and for TRT-LLM's MXINT4.
#pragma once

#include "select/backend.hpp"

namespace fewbit::foreign {

// Errors unsupported: no 4-bit integers; stored zero points that the kernels have no place for; a
// zero point of all codes that is not the middle.
Result<void> check_cpu_int4(const MoeProblem& problem);
Result<void> check_xpu_int4(const MoeProblem& problem);
Result<void> check_mxint4(const MoeProblem& problem);

Result<MoePlan> plan_cpu_int4_experts(const MoeProblem& problem, const ExpertWeights& first);
Result<void> pack_cpu_int4_expert(const MoeProblem& problem, const MoePlan& plan,
                                  const ExpertWeights& expert, ExpertSpans to);

Result<MoePlan> plan_xpu_int4_experts(const MoeProblem& problem, const ExpertWeights& first);
Result<void> pack_xpu_int4_expert(const MoeProblem& problem, const MoePlan& plan,
                                  const ExpertWeights& expert, ExpertSpans to);

Result<MoePlan> plan_mxint4_experts(const MoeProblem& problem, const ExpertWeights& first);
Result<void> pack_mxint4_expert(const MoeProblem& problem, const MoePlan& plan,
                                const ExpertWeights& expert, ExpertSpans to);

}  // namespace fewbit::foreign
