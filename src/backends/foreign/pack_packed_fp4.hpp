// SPDX-License-Identifier: Apache-2.0
// NVFP4 and MXFP4 experts in 16x64 tiles with a grid of byte scales: for b12x with 16-bit
// activations, and NVFP4 for Marlin (one layout for both).
//
// NVFP4 scales become bytes of 5 exponent and 3 mantissa bits, and the global scales take the power
// of two of that encoding: one for each expert and matrix, so that small scales of one do not
// suffer from large ones of another. MXFP4 scales stay bytes.
#pragma once

#include "backends/foreign/fp4_source.hpp"
#include "backends/foreign/rule_backend.hpp"

namespace fewbit::foreign {

// Of intermediate_size: as Marlin's tiles ask for it, or to blocks of 128 rows without a gate.
enum class PackedPadding { none, marlin, blocks };
struct PackedFp4Form {
  Set<WeightKind> kinds;
  const char* expected;
  PackedPadding padding = PackedPadding::none;
};
inline constexpr PackedFp4Form marlin_nvfp4_form{
    .kinds = {WeightKind::nvfp4}, .expected = "NVFP4", .padding = PackedPadding::marlin};

// Errors unsupported: other weights, biases, gate and up whose global scales stay two; scales that
// the encoding would lose (when packed).
Result<void> check_packed_fp4(const PackedFp4Form& form, const MoeProblem& problem);
Result<MoePlan> plan_packed_fp4(const PackedFp4Form& form, const MoeProblem& problem);
Result<void> pack_packed_fp4(const PackedFp4Form& form, const MoeProblem& problem,
                             const MoePlan& plan, const ExpertWeights& expert, ExpertSpans to);
Result<void> undo_packed_fp4(const PackedFp4Form& form, const MoeProblem& problem,
                             const MoePlan& plan, const ExpertWeights& expert,
                             ConstExpertSpans from);

}  // namespace fewbit::foreign
