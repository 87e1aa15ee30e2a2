// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/expert_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace fewbit::cuda {
namespace {

const std::uint8_t* bytes_of(const Tensor& tensor) {
  return reinterpret_cast<const std::uint8_t*>(tensor.view.bytes.data());
}

}  // namespace

CudaF4Source source_of(const MoeProblem& problem, const ExpertWeights& expert, int matrix) {
  const Dims half = matrix == 0 ? half1(problem) : half2(problem);
  const std::int64_t group = format_of(problem) == F4Format::e4m3_k16 ? 16 : 32;
  const bool two = matrix == 0 && expert.gate.has_value();
  CudaF4Source from{.rows = half.n, .depth = half.k};
  for (int h = 0; h < 2; ++h) {
    const QuantizedTensor& tensor = matrix == 1     ? expert.down
                                    : two && h == 0 ? *expert.gate
                                                    : expert.up;
    const std::int64_t row = two ? 0 : h * half.n;
    from.codes[h] = bytes_of(tensor.codes) + row * (half.k / 2);
    from.scales[h] = bytes_of(tensor.scales) + row * (half.k / group);
  }
  return from;
}

std::array<float, 3> globals_of(const ExpertWeights& expert) {
  const QuantizedTensor& first = expert.gate ? *expert.gate : expert.up;
  return {first.global_scale, expert.up.global_scale, expert.down.global_scale};
}

std::int64_t bias_count(const MoeProblem& problem) {
  return 2 * half1(problem).n + problem.hidden_size;
}

Result<std::vector<float>> biases_of(const MoeProblem& problem, const ExpertWeights& expert) {
  std::vector<float> out;
  const auto add = [&](const char* name, const std::vector<float>& bias,
                       std::int64_t size) -> Result<void> {
    if (!bias.empty() && std::ssize(bias) != size) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("{} bias of {} values, expected {}", name, bias.size(), size),
                   problem.where};
    }
    out.insert(out.end(), bias.begin(), bias.end());
    if (bias.empty()) out.resize(out.size() + static_cast<std::size_t>(size));
    return {};
  };
  if (expert.gate) FEWBIT_TRY(add("gate", expert.gate_bias, problem.intermediate_size));
  FEWBIT_TRY(add("up", expert.up_bias, problem.intermediate_size));
  FEWBIT_TRY(add("down", expert.down_bias, problem.hidden_size));
  return out;
}

ScaleRange scale_range(const ExpertWeights& expert) {
  ScaleRange range;
  const auto add = [&range](const QuantizedTensor& tensor) {
    for (const std::byte b : tensor.scales.view.bytes) {
      const auto scale = static_cast<std::uint8_t>(b);
      if (scale == 0) continue;
      range.least = std::min(range.least, scale);
      range.most = std::max(range.most, scale);
    }
  };
  if (expert.gate) add(*expert.gate);
  add(expert.up);
  add(expert.down);
  return range;
}

bool grouped_takes(const MoeProblem& problem, const ScaleRange& range) {
  if (format_of(problem) == F4Format::e4m3_k16) return true;
  return range.most == 0 || (range.least >= grouped_least_e8m0 && range.most <= grouped_most_e8m0);
}

}  // namespace fewbit::cuda
