// SPDX-License-Identifier: Apache-2.0
// What the device needs of one expert, from its canonical matrices: those that gguf_exact() gives.
#pragma once

#include <array>
#include <vector>

#include "backends/cuda_moe/cuda_moe.hpp"
#include "layout/cuda_f4_pack.hpp"
#include "layout/cuda_f8_pack.hpp"
#include "layout/cuda_int_pack.hpp"

namespace fewbit::cuda {

// Rows of fc1 (matrix 0: gate and up; without a gate both halves of up) or of both halves of down.
CudaF4Source source_of(const MoeProblem& problem, const ExpertWeights& expert, int matrix);

// The same of int4, int8, ternary and NF3 matrices, with their scales and zero points in memory of
// its own.
// Errors unsupported: offsets; a zero point that isn't 0 to 127 from the smallest code of int4, or
// a code of int8.
struct IntParts {
  CudaIntSource source;
  std::vector<std::uint8_t>
      codes[2];  // with act-order: rows of fc1 in down's, columns in their own
  std::vector<std::uint16_t> scales[2];
  std::vector<std::uint8_t> zeros[2];
};
Result<IntParts> int_parts_of(const MoeProblem& problem, const ExpertWeights& expert, int matrix);

// The same of e4m3 matrices: scales of blocks in f32, those of MXFP8 where they are, or none. Their
// codes may hold NaN.
struct F8Parts {
  CudaF8Source source;
  std::vector<float> scales[2];
};
Result<F8Parts> f8_parts_of(const MoeProblem& problem, const ExpertWeights& expert, int matrix);
// [both halves of fc1, hidden] of e4m3 matrices with scales of rows.
Result<std::vector<float>> row_scales_of(const ExpertWeights& expert);
Error nan_code(const MoeProblem& problem);

// With act-order: the hidden feature at each place of the columns of gate and up. Error
// invalid_argument: they have two orders.
Result<std::vector<std::int32_t>> hidden_order_of(const MoeProblem& problem,
                                                  const ExpertWeights& expert);

// The global scale of a matrix; a scale of a whole tensor is one more factor of it.
Result<float> global_of(const QuantizedTensor& tensor);
// A matrix's scales as they are stored.
Result<std::vector<float>> scales_in_f32(const QuantizedTensor& tensor);
// Gate (without one: up), up, down.
Result<std::array<float, 3>> globals_of(const ExpertWeights& expert);

// [both halves of fc1, hidden]; what has no bias has zeros. Error invalid_argument: a bias of
// another size.
std::int64_t bias_count(const MoeProblem& problem);
Result<std::vector<float>> biases_of(const MoeProblem& problem, const ExpertWeights& expert);

// The least and the largest byte of the scales that aren't zero.
struct ScaleRange {
  std::uint8_t least = 255;
  std::uint8_t most = 0;
};
ScaleRange scale_range(const ExpertWeights& expert);
void add_scales(const QuantizedTensor& tensor, ScaleRange& range);
// Whether weights with such scales go through grouped products.
bool grouped_takes(const MoeProblem& problem, const ScaleRange& range);

}  // namespace fewbit::cuda
