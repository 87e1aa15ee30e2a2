// SPDX-License-Identifier: Apache-2.0
// Matrices from the mapped source to the writer, in pieces of rows.
#pragma once

#include "quantize/quantize_plan.hpp"

namespace fewbit {

struct MatrixResult {
  float largest_weight = 0.0F;
  std::int64_t erased_blocks = 0;
  std::int64_t nonzero_blocks = 0;  // with a weight that is not zero
  std::int64_t clamped_scales = 0;
  double error_squares = 0;   // sum of (w - q(w))^2
  double weight_squares = 0;  // sum of w^2
  // Sum of ||b - q(b)|| / ||b|| over the blocks that are not zero: one large weight hides in the
  // sums above what it did to all other blocks, but not here.
  double block_errors = 0;

  double erased_share() const {
    return nonzero_blocks == 0
               ? 0.0
               : static_cast<double>(erased_blocks) / static_cast<double>(nonzero_blocks);
  }
  double block_error() const {
    return nonzero_blocks == 0 ? 0.0 : block_errors / static_cast<double>(nonzero_blocks);
  }
};

// One after the other, with the global scale of the largest weight of all. Holds a few megabytes at
// most, whatever the size of the matrices; of one that is stored inputs first all codes and scales,
// twice. Thread-safe.
// Errors: corrupt (a NaN or infinite weight, with tensor and place), unsupported (dtype), io.
Result<std::vector<MatrixResult>> quantize_matrices(const Checkpoint& source,
                                                    const SharedJobs& jobs,
                                                    CheckpointWriter& writer);

}  // namespace fewbit
