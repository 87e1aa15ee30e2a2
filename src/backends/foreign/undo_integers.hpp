// SPDX-License-Identifier: Apache-2.0
// Integer layouts taken apart: every code, scale (in the type that it was rounded to), zero point,
// sum and bias is where the closed form says, act-order undone.
#pragma once

#include "select/backend.hpp"

namespace fewbit::foreign {

// Errors inconsistent: where they differ; an order that names no column.
Result<void> undo_marlin_int(const MoeProblem& problem, const MoePlan& plan,
                             const ExpertWeights& expert, ConstExpertSpans from);
Result<void> undo_cpu_int4(const MoeProblem& problem, const MoePlan& plan,
                           const ExpertWeights& expert, ConstExpertSpans from);
Result<void> undo_xpu_int4(const MoeProblem& problem, const MoePlan& plan,
                           const ExpertWeights& expert, ConstExpertSpans from);
Result<void> undo_mxint4(const MoeProblem& problem, const MoePlan& plan,
                         const ExpertWeights& expert, ConstExpertSpans from);

}  // namespace fewbit::foreign
