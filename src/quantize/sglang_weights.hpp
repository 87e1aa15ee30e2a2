// SPDX-License-Identifier: Apache-2.0
// Round-to-nearest integer weights exactly as SGLang's helpers make them, for tools and tests that
// must agree with it to the bit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "canonical/integer_words.hpp"
#include "fewbit/result.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit::sglang {

// Stored codes are value + bias; values lie in [least, most].
struct IntegerType {
  std::int32_t least = 0;
  std::int32_t most = 0;
  std::int32_t bias = 0;
};
// "uint4", "uint8", "int4", "int8", "uint4b8", "uint8b128", "uint2b2", "uint3b4".
// Error not_found lists them.
Result<IntegerType> integer_type(std::string_view name);

// What scale and zero point of a group cover: SGLang's take the range of the weights alone and lose
// the sign of its end, so that groups of one sign decode to one value; with zero among them none
// do.
enum class ZeroPointRange { as_sglang, with_zero };

struct QuantizeOptions {
  IntegerType type;
  // Rows that share a scale; -1: all of them; empty: no scale, that is 1.
  std::optional<std::int64_t> group_size = -1;
  bool zero_points = false;
  ZeroPointRange range = ZeroPointRange::as_sglang;
  bool zeros_after_scales = false;  // only the reference: code * scale - zero * scale
};

// Everything row-major. scales and zeros [groups, n]; empty without.
struct QuantizedWeights {
  std::vector<float> reference;     // [k, n], values of reference_dtype
  std::vector<std::int32_t> codes;  // [k, n], with bias
  std::vector<float> scales;        // values of the weights' type
  std::vector<std::int32_t> zeros;
  DType reference_dtype = DType::f32;  // f32 without scales, else the weights' type
};

// w [k, n], values of dtype (f32, f16, bf16); every operation is rounded to dtype.
//   symmetric: scale = max(|max / most|, |min / least|), value = clamp(round(w / scale))
//   zero points: scale = max(max - min, 1e-5) / most, zero = clamp(round(|min / scale|)),
//     value = clamp(round(w / scale) + zero)
//     (min <= 0 <= max with ZeroPointRange::with_zero)
// A group of zeros has scale 0 and codes of value 0 (SGLang divides by zero there).
// Errors: invalid_argument (sizes, dtype, NaN or infinity, zero points of a signed type).
Result<QuantizedWeights> quantize_weights(std::span<const float> w, MatrixSize size, DType dtype,
                                          const QuantizeOptions& options);

// Quantizes (uint4b8 or uint8b128; groups of -1, 32, 64, 128 or k), then, where `order` [k] is
// given, moves rows: row i of codes, reference and g_idx is row order[i].
// Errors: as above; invalid_argument when `order` is no permutation or there is one group only.
struct OrderedWeights {
  QuantizedWeights weights;
  std::vector<std::int32_t> g_idx;  // empty without order
};
Result<OrderedWeights> gptq_quantize_weights(std::span<const float> w, MatrixSize size, DType dtype,
                                             std::string_view type, std::int64_t group_size,
                                             std::span<const std::int64_t> order);

}  // namespace fewbit::sglang
