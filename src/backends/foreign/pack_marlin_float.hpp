// SPDX-License-Identifier: Apache-2.0
// MXFP4 and FP8 experts as Marlin kernels for 16-bit activations read them.
//
//   MXFP4  words in 16x64 tiles, e8m0 scales in the order of byte scales
//   FP8    words in tiles of bytes; scales rounded to the activations' type and lifted
//          (marlin_e4m3_lift), one a row or a block of 128
//
// Biases are of the activations' type, in the order of single scales. Gate rows come first.
#pragma once

#include "select/backend.hpp"

namespace fewbit::foreign {

// To which multiples an engine pads MXFP4.
struct MarlinMxPadding {
  std::int64_t hidden = 1;
  std::int64_t intermediate = 1;
};

// Whether the weights are of such a kind.
bool is_marlin_float(const MoeProblem& problem);
// Error unsupported: gate and up are of another kind than down.
Result<void> check_marlin_float(const MoeProblem& problem);
Result<MoePlan> plan_marlin_float(const MoeProblem& problem, const ExpertWeights& first,
                                  MarlinMxPadding padding);
Result<void> pack_marlin_float(const MoeProblem& problem, const MoePlan& plan,
                               const ExpertWeights& expert, ExpertSpans to,
                               MarlinMxPadding padding);
// Codes and MXFP4's scales taken apart again. Error inconsistent: where they differ.
Result<void> undo_marlin_float(const MoeProblem& problem, const MoePlan& plan,
                               const ExpertWeights& expert, ConstExpertSpans from,
                               MarlinMxPadding padding);

}  // namespace fewbit::foreign
