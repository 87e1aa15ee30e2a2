// SPDX-License-Identifier: Apache-2.0
// y_i = w_i * x_i / sqrt(mean(x^2) + epsilon), in f32, rounded once.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fewbit/executor.hpp"
#include "fewbit/tensor.hpp"
#include "model/element.hpp"

namespace fewbit {

struct RmsNorm {
  std::vector<float> weight;
  float epsilon = 0;
};

// 1 / sqrt(mean(x^2) + epsilon). Sixteen partial sums: accurate, and the same for every caller.
template <class T>
float rms_factor(std::span<const T> x, float epsilon) {
  constexpr std::size_t lanes = 16;
  float partial[lanes] = {};
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float value = element_value(x[i]);
    partial[i % lanes] += value * value;
  }
  float sum = 0;
  for (const float part : partial) sum += part;
  return 1.0F / std::sqrt(sum / static_cast<float>(x.size()) + epsilon);
}

// x, y: [rows, weight.size()] of dtype; they may be the same memory.
void rms_norm(const RmsNorm& norm, DType dtype, std::span<const std::byte> x,
              std::span<std::byte> y, Executor& executor);

}  // namespace fewbit
