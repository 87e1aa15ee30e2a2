// SPDX-License-Identifier: Apache-2.0
#include "model/rope.hpp"

#include <cmath>

namespace fewbit {

void fill_rope(double theta, std::int64_t start, std::size_t half, std::span<float> cosine,
               std::span<float> sine) {
  for (std::size_t i = 0; i < half; ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(half);
    const auto frequency = static_cast<float>(1.0 / std::pow(theta, exponent));
    std::int64_t position = start;
    for (std::size_t at = i; at < cosine.size(); at += half, ++position) {
      const float angle = static_cast<float>(position) * frequency;
      cosine[at] = static_cast<float>(std::cos(double{angle}));
      sine[at] = static_cast<float>(std::sin(double{angle}));
    }
  }
}

void rotate_halves(std::span<float> head, std::span<const float> cosine,
                   std::span<const float> sine) {
  const std::size_t half = head.size() / 2;
  for (std::size_t i = 0; i < half; ++i) {
    const float first = head[i];
    const float second = head[i + half];
    head[i] = first * cosine[i] - second * sine[i];
    head[i + half] = second * cosine[i] + first * sine[i];
  }
}

}  // namespace fewbit
