// SPDX-License-Identifier: Apache-2.0
// NVFP4 and MXFP4 experts for TensorRT-LLM's kernels in FlashInfer: rows of up and gate in turn and
// shuffled, block scales in the same rows and swizzled, biases in f32 in the same rows.
#pragma once

#include "backends/foreign/fp4_source.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit::foreign {

struct TrtllmFp4Form {
  Set<WeightKind> kinds;
  const char* expected;
  std::int64_t hidden = 1;        // multiples that an engine pads to
  std::int64_t intermediate = 1;  // of a gated layer
  std::int64_t ungated_intermediate = 1;
};

// Errors unsupported: other weights, biases of NVFP4 experts, two global scales that stay two.
Result<void> check_trtllm_fp4(const TrtllmFp4Form& form, const MoeProblem& problem);
Result<MoePlan> plan_trtllm_fp4(const TrtllmFp4Form& form, const MoeProblem& problem,
                                const ExpertWeights& first);
Result<void> pack_trtllm_fp4(const TrtllmFp4Form& form, const MoeProblem& problem,
                             const MoePlan& plan, const ExpertWeights& expert, ExpertSpans to);
Result<void> undo_trtllm_fp4(const TrtllmFp4Form& form, const MoeProblem& problem,
                             const MoePlan& plan, const ExpertWeights& expert,
                             ConstExpertSpans from);

template <const TrtllmFp4Form& form>
inline constexpr const Preparation& trtllm_fp4_preparation =
    form_preparation<form, plan_trtllm_fp4, pack_trtllm_fp4, check_trtllm_fp4, undo_trtllm_fp4>;

}  // namespace fewbit::foreign
