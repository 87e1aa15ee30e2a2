// SPDX-License-Identifier: Apache-2.0
// What quantize_checkpoint will do with each tensor, decided before any data is read.
#pragma once

#include <string>
#include <vector>

#include "fewbit/quantize.hpp"

namespace fewbit {

// One matrix: a module's, or one expert's of a fused module.
struct MatrixJob {
  const TensorInfo* source = nullptr;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t slice = 0;   // which matrix of the source tensor
  bool transposed = false;  // source [k, n], output codes [k/2, n] and scales [k/16, n]
  std::string weight;       // names of the output tensors
  std::string scale;
  std::string global;
};

// Matrices that engines fuse and give one global scale: gate and up of an expert; q, k and v.
using SharedJobs = std::vector<MatrixJob>;

struct QuantizePlan {
  std::vector<SharedJobs> jobs;         // in the order of the source files
  std::vector<const TensorInfo*> kept;  // copied as they are, in the same order
  std::vector<TensorSpec> outputs;
  std::vector<std::string> ignored;  // modules that stay 16-bit, for the config
  std::int64_t quantized_tensors = 0;
};

// Errors: unsupported (already quantized; unreadable module; k % 16; experts stored inputs first in
// a family that is not known for it), not_found (nothing to quantize).
Result<QuantizePlan> plan_quantization(const Checkpoint& source, const Identified& identified,
                                       const QuantizeOptions& options);

}  // namespace fewbit
