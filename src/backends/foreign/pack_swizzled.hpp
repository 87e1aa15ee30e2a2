// SPDX-License-Identifier: Apache-2.0
// Experts for grouped products of CUTLASS and CuTe DSL and for b12x with NVFP4 activations: rows of
// codes as they are, gate or up first, and block scales swizzled 128x4. Biases are of the
// activations' type, in the same rows. 16-bit weights are rows alone.
#pragma once

#include "backends/foreign/fp4_source.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit::foreign {

struct SwizzledForm {
  Set<WeightKind> kinds;
  const char* expected;
  FirstPart first = FirstPart::up;
  // Kinds that the kernels take in another arrangement, which no source describes.
  Set<WeightKind> undescribed = {};
  // MXFP4 is arranged so only for these.
  Set<ActivationKind> mx_activations = Set<ActivationKind>::all();
  // Multiples that an engine pads MXFP4 to; NVFP4 without a gate gets rows for whole blocks of 128.
  std::int64_t mx_multiple = 128;
};

// Errors unsupported: other weights, two global scales that stay two.
Result<void> check_swizzled(const SwizzledForm& form, const MoeProblem& problem);
Result<MoePlan> plan_swizzled(const SwizzledForm& form, const MoeProblem& problem,
                              const ExpertWeights& first);
Result<void> pack_swizzled(const SwizzledForm& form, const MoeProblem& problem, const MoePlan& plan,
                           const ExpertWeights& expert, ExpertSpans to);
Result<void> undo_swizzled(const SwizzledForm& form, const MoeProblem& problem, const MoePlan& plan,
                           const ExpertWeights& expert, ConstExpertSpans from);

template <const SwizzledForm& form>
inline constexpr const Preparation& swizzled_preparation =
    form_preparation<form, plan_swizzled, pack_swizzled, check_swizzled, undo_swizzled>;

}  // namespace fewbit::foreign
