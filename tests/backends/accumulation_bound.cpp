// SPDX-License-Identifier: Apache-2.0
#include "backends/accumulation_bound.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "moe/routing.hpp"

namespace fewbit::test {
namespace {

constexpr double unit = 0x1p-24;

std::vector<float> dense(const QuantizedTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.n * tensor.k));
  EXPECT_TRUE(dequantize_rows(tensor, 0, values));
  return values;
}

// [n] sum over k of |w| v, v >= 0.
std::vector<double> magnitudes(const std::vector<float>& w, const std::vector<double>& v) {
  std::vector<double> sums(w.size() / v.size());
  for (std::size_t i = 0; i < w.size(); ++i) sums[i / v.size()] += std::abs(w[i]) * v[i % v.size()];
  return sums;
}

std::vector<double> with_bias(std::vector<double> sums, const std::vector<float>& bias) {
  for (std::size_t i = 0; i < bias.size(); ++i) sums[i] += std::abs(bias[i]);
  return sums;
}

struct DenseExpert {
  std::vector<float> gate, up, down;
};

// Error of each activated element, from errors of its gate and up. No gated formula is steeper in
// its gate than 1.13 |up + beta|.
double activated_error(const ActivationParams& params, double gate, double up, double gate_error,
                       double up_error) {
  if (params.kind == Activation::relu2) {
    return 2 * (std::abs(up) + up_error) * up_error + 16 * unit * up * up;
  }
  const double second = std::abs(up) + std::abs(params.beta) + up_error;
  return 1.13 * gate_error * second + std::abs(gate) * up_error +
         16 * unit * std::abs(gate) * second;
}

}  // namespace

std::vector<double> accumulation_bound(const MoeProblem& problem, const MoeWeights& weights,
                                       const Call& call, const MoeReferenceResult& reference) {
  const auto hidden_size = static_cast<std::size_t>(problem.hidden_size);
  const auto width = static_cast<std::size_t>(problem.intermediate_size);
  const auto top_k = static_cast<std::size_t>(problem.top_k);
  std::vector<DenseExpert> experts;
  for (const ExpertWeights& e : weights.experts)
    experts.push_back({e.gate ? dense(*e.gate) : std::vector<float>{}, dense(e.up), dense(e.down)});
  const bool gated = activation_gated(problem.activation.kind);
  const std::size_t fc1_width = gated ? 2 * width : width;

  std::vector<double> bound(reference.out.size());
  for (std::size_t route = 0; route < call.ids.size(); ++route) {
    const std::int32_t id =
        local_expert(call.ids[route], call.expert_map.data(),
                     static_cast<std::int64_t>(call.expert_map.size()), problem.num_experts);
    if (id == no_expert) continue;
    const DenseExpert& expert = experts[static_cast<std::size_t>(id)];
    const std::size_t token = route / top_k;
    const double weight = std::abs(double{call.weights[route]});
    const bool on_input = problem.router_weight_side == RouterWeightSide::input;

    std::vector<double> x(hidden_size);
    for (std::size_t k = 0; k < hidden_size; ++k)
      x[k] = std::abs(double{call.hidden[token * hidden_size + k]}) * (on_input ? weight : 1);
    const double fc1_roundings = static_cast<double>(hidden_size + 20) * unit;
    const ExpertWeights& stored = weights.experts[static_cast<std::size_t>(id)];
    const auto up = with_bias(magnitudes(expert.up, x), stored.up_bias);
    const auto gate = gated ? with_bias(magnitudes(expert.gate, x), stored.gate_bias) : up;

    std::vector<double> error(width);
    std::vector<double> activated(width);
    for (std::size_t i = 0; i < width; ++i) {
      const double* fc1 = &reference.trace.fc1[route * fc1_width];
      error[i] = activated_error(problem.activation, fc1[i], fc1[fc1_width - width + i],
                                 fc1_roundings * gate[i], fc1_roundings * up[i]);
      activated[i] = std::abs(reference.trace.activated[route * width + i]) + error[i];
    }
    const auto moved = magnitudes(expert.down, error);
    const auto size = with_bias(magnitudes(expert.down, activated), stored.down_bias);
    const double fc2_roundings = static_cast<double>(width + 20 + top_k + 1) * unit;
    for (std::size_t h = 0; h < hidden_size; ++h) {
      // 1.01: a moved activated row is rounded to its type after it has moved.
      bound[token * hidden_size + h] +=
          (on_input ? 1 : weight) * (1.01 * moved[h] + fc2_roundings * size[h]);
    }
  }
  return bound;
}

}  // namespace fewbit::test
