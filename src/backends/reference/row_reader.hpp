// SPDX-License-Identifier: Apache-2.0
// The rows of a canonical matrix, one at a time: nothing is widened at rest.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "fewbit/quantized.hpp"

namespace fewbit {

class RowReader {
 public:
  explicit RowReader(const QuantizedTensor& tensor) : unit_(tensor) {
    if (!tensor.offsets.view.bytes.empty()) return;  // these are no part of the product
    global_ = tensor.global_scale;
    unit_.global_scale = 1.0F;
  }

  // Row `row` without the global scale, as dequantize_rows() gives it; out holds k elements.
  Result<void> read(std::int64_t row, std::span<float> out) const {
    return dequantize_rows(unit_, row, out);
  }
  // Multiplies a whole sum, in double, so that it costs no rounding a weight.
  double global() const { return global_; }
  std::int64_t rows() const { return unit_.n; }
  std::int64_t cols() const { return unit_.k; }
  const QuantizedTensor& tensor() const { return unit_; }
  // Size of the codes and scales.
  std::uint64_t bytes() const {
    return unit_.codes.view.bytes.size() + unit_.scales.view.bytes.size() +
           unit_.zero_points.view.bytes.size() + unit_.offsets.view.bytes.size() +
           unit_.g_idx.view.bytes.size();
  }

 private:
  QuantizedTensor unit_;
  double global_ = 1;
};

// Sum of a[i] * b[i] in double; products of two f32 are exact there. Eight partial sums, so that
// additions overlap; always the same order.
inline double dot(std::span<const float> a, std::span<const float> b) {
  std::array<double, 8> sum{};
  std::size_t i = 0;
  for (; i + sum.size() <= a.size(); i += sum.size()) {
    for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += double{a[i + j]} * double{b[i + j]};
  }
  for (std::size_t j = 0; i < a.size(); ++i, ++j) sum[j] += double{a[i]} * double{b[i]};
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

}  // namespace fewbit
