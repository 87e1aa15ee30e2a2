// SPDX-License-Identifier: Apache-2.0
// All weights that Marlin kernels take and that a layout is known for: integers (pack_marlin.hpp),
// NVFP4 (pack_packed_fp4.hpp), MXFP4 and FP8 (pack_marlin_float.hpp).
#pragma once

#include "backends/foreign/pack_marlin_float.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit::foreign::marlin {

// Error unsupported: weights that have no form here, or not one form for both matrices.
Result<void> check(const MoeProblem& problem);
Result<MoePlan> plan(const MoeProblem& problem, const ExpertWeights& first,
                     MarlinMxPadding padding);
Result<void> pack(const MoeProblem& problem, const MoePlan& plan, const ExpertWeights& expert,
                  ExpertSpans to, MarlinMxPadding padding);
Result<void> undo(const MoeProblem& problem, const MoePlan& plan, const ExpertWeights& expert,
                  ConstExpertSpans from, MarlinMxPadding padding);

inline constexpr MarlinMxPadding vllm_padding{.hidden = 256, .intermediate = 128};
inline constexpr MarlinMxPadding no_padding{};

template <const MarlinMxPadding& padding>
inline constexpr Preparation preparation{
    .plan = [](const MoeProblem& problem,
               const ExpertWeights& first) { return marlin::plan(problem, first, padding); },
    .pack = [](const MoeProblem& problem, const MoePlan& planned, const ExpertWeights& expert,
               ExpertSpans to) { return marlin::pack(problem, planned, expert, to, padding); },
    .check = marlin::check,
    .undo =
        [](const MoeProblem& problem, const MoePlan& planned, const ExpertWeights& expert,
           ConstExpertSpans from) { return marlin::undo(problem, planned, expert, from, padding); },
};

}  // namespace fewbit::foreign::marlin
