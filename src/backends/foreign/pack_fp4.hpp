// SPDX-License-Identifier: Apache-2.0
// NVFP4 experts for TRT-LLM's kernels in FlashInfer and for Marlin and b12x (one layout for both).
// Sizes are padded as the engines do: gate and up each for itself.
#pragma once

#include "select/backend.hpp"

namespace fewbit::foreign {

// The kernels have one global scale for gate and up. Where theirs differ, block scales take up the
// difference if all of them can do so exactly; a layer where some can't is refused.
//
// Error unsupported: other weights than NVFP4, biases, gate and up whose global scales stay two.
Result<void> check_nvfp4(const MoeProblem& problem);
// Also: weights that ask for activations.
Result<void> check_b12x(const MoeProblem& problem);

// Up rows first.
Result<MoePlan> plan_trtllm_nvfp4_experts(const MoeProblem& problem, const ExpertWeights& first);
Result<void> pack_trtllm_nvfp4_expert(const MoeProblem& problem, const MoePlan& plan,
                                      const ExpertWeights& expert, ExpertSpans to);

// Tiles, scales as E5M3 without sign, global scales with the power of two that the encoding took:
// one for each expert and matrix, so that small scales of one do not suffer from large ones of
// another. Errors unsupported: those of check_nvfp4; scales that the encoding would lose.
Result<MoePlan> plan_packed_nvfp4_experts(const MoeProblem& problem, const ExpertWeights& first);
Result<void> pack_packed_nvfp4_expert(const MoeProblem& problem, const MoePlan& plan,
                                      const ExpertWeights& expert, ExpertSpans to);

// The same, for weights that ask for no activations.
Result<MoePlan> plan_b12x_experts(const MoeProblem& problem, const ExpertWeights& first);

}  // namespace fewbit::foreign
