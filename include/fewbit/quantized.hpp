// SPDX-License-Identifier: Apache-2.0
// Step 3, canonicalize: one form for every producer's tensors. Nothing after this knows a producer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fewbit/checkpoint.hpp"
#include "fewbit/scheme.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {

// A matrix [n, k] (n = out_features, k = in_features).
//
//   value(i, j) = (code(i, j) - zero(i, j)) * (scale(i, j) * global_scale) + offset(i, j)
//
// Each operation is rounded to f32 (code - zero is exact for integers). scale, zero and offset are
// those of the element's group: row i / rows, column g_idx[j] with act-order, else j / cols.
struct QuantizedTensor {
  std::int64_t n = 0;
  std::int64_t k = 0;
  Scheme scheme;
  // [n, k] codes of scheme.weight; each row is a dense little-endian bit stream in whole bytes, so
  // 4-bit codes have even k in the low nibble. Plain schemes: the 16/32-bit values themselves.
  // GGUF (scheme.ggml_type): the blocks as stored, row by row; scales and the rest stay inside.
  Tensor codes;
  // [ceil(n/rows), ceil(k/cols)] of scheme.scale->dtype, multiply; empty for plain schemes. With
  // act-order there may be more groups than columns fill: those of the matrix that they were cut
  // from.
  Tensor scales;
  // As scales, u8, i8 or i32; empty: scheme.zero_point is every element's zero.
  Tensor zero_points;
  // As scales, f16 or f32, added after scaling; empty: none.
  Tensor offsets;
  // i32 [k], group of each column; empty: groups are runs of columns.
  Tensor g_idx;
  // [k]: activations are multiplied by it before the product; the weights are stored for that.
  Tensor pre_quant_scale;
  float global_scale = 1.0F;  // multiply
  // The producer's own bits of the global scale (a divisor for compressed-tensors), to write back.
  float stored_global_scale = 1.0F;
};

// One expert; a non-gated activation has no gate.
struct ExpertWeights {
  std::optional<QuantizedTensor> gate;  // [intermediate_size, hidden_size]
  QuantizedTensor up;                   // [intermediate_size, hidden_size]
  QuantizedTensor down;                 // [hidden_size, intermediate_size]
  // One value a row, added to the product with that matrix; empty: none.
  std::vector<float> gate_bias = {};
  std::vector<float> up_bias = {};
  std::vector<float> down_bias = {};

  bool biased() const { return !gate_bias.empty() || !up_bias.empty() || !down_bias.empty(); }
};

// The routed experts of one layer, by expert id. Gate and up keep their own global scales.
struct MoeWeights {
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::vector<ExpertWeights> experts;
};

// Maps (never copies) the parts of a module. Expert -1, or which expert of a fused tensor.
// Errors name the tensor: not_found, corrupt (dtype, shape with both numbers), unsupported.
Result<QuantizedTensor> canonicalize(const Checkpoint& checkpoint, const Module& module,
                                     std::int64_t fused_expert = -1);

// All experts of a layer. Errors: as canonicalize; inconsistent when experts are missing (lists
// them) or differ in shape.
Result<MoeWeights> gather_moe(const Checkpoint& checkpoint, const Identified& identified,
                              int layer);

// Rows [row, row + out.size()/k) as f32. The one place that knows what a scheme's codes mean.
// Errors: invalid_argument (range), unsupported (scheme).
Result<void> dequantize_rows(const QuantizedTensor& tensor, std::int64_t row, std::span<float> out);

// Wraps caller-owned memory, checking every size: plain values, or e2m1 codes with e4m3 scales.
Result<QuantizedTensor> make_plain(std::int64_t n, std::int64_t k, Tensor values,
                                   float global_scale = 1.0F);
// Any canonical matrix: checks dtypes, sizes and shapes of every part against scheme, n and k.
// Errors: invalid_argument, the part with both numbers.
Result<void> check_quantized(const QuantizedTensor& tensor);
Result<QuantizedTensor> make_nvfp4(std::int64_t n, std::int64_t k, Tensor codes, Tensor scales,
                                   float global_scale);

}  // namespace fewbit
