// SPDX-License-Identifier: Apache-2.0
// What b12x reads: tiles for 16-bit activations (pack_packed_fp4.hpp), rows and swizzled scales for
// NVFP4 activations (pack_swizzled.hpp, up rows first).
#pragma once

#include "backends/foreign/pack_packed_fp4.hpp"
#include "backends/foreign/pack_swizzled.hpp"

namespace fewbit::foreign::b12x {

inline constexpr SwizzledForm w4a4{.kinds = {WeightKind::nvfp4}, .expected = "NVFP4"};

// Error unsupported: as of the form for the problem's activations; MXFP4 activations.
Result<void> check(const PackedFp4Form& packed, const MoeProblem& problem);
Result<MoePlan> plan(const PackedFp4Form& packed, const MoeProblem& problem,
                     const ExpertWeights& first);
Result<void> pack(const PackedFp4Form& packed, const MoeProblem& problem, const MoePlan& plan,
                  const ExpertWeights& expert, ExpertSpans to);
Result<void> undo(const PackedFp4Form& packed, const MoeProblem& problem, const MoePlan& plan,
                  const ExpertWeights& expert, ConstExpertSpans from);

template <const PackedFp4Form& packed>
inline constexpr const Preparation& preparation = form_preparation<packed, plan, pack, check, undo>;

}  // namespace fewbit::foreign::b12x
