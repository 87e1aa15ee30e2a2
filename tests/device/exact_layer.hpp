// SPDX-License-Identifier: Apache-2.0
// The exact product of a random layer.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "device/random_layer.hpp"

namespace fewbit::cuda {

struct ExactActivation {
  double value = 0;
  double error = 0;
};

// From products of gate and up with their errors. The slopes of all gates are below 1.13.
inline ExactActivation exact_activation(const MoeF4Rule& rule, const RandomLayer::Dot& gate,
                                        const RandomLayer::Dot& up) {
  if (rule.activation == F4Activation::relu2) {
    return {relu2(up.sum), (2 * std::abs(up.sum) + up.size) * up.size};
  }
  const double g = clamp_gate(gate.sum, double{rule.constants.limit});
  const double u = clamp_up(up.sum, double{rule.constants.limit});
  double gated = 0;
  double other = u;
  switch (rule.activation) {
    case F4Activation::gelu:
      gated = gelu(g);
      break;
    case F4Activation::gelu_tanh:
      gated = gelu_tanh(g);
      break;
    default:
      gated = g * sigmoid(double{rule.constants.alpha} * g);
      other = u + double{rule.constants.beta};
  }
  const double arithmetic = std::ldexp(std::abs(g * other) + std::abs(gated), -20);
  return {gated * other,
          1.13 * gate.size * (std::abs(other) + up.size) + up.size * std::abs(gated) + arithmetic};
}

// One token's exact result, and how far a result may be from it: products of weights and
// activations added up in f32, the activated rows and the sum rounded to the type of activations.
struct ExactRow {
  std::vector<double> value;
  std::vector<double> bound;
};

inline ExactRow exact_row(const RandomLayer& layer, std::int64_t token) {
  const StreamShape& s = layer.shape;
  ExactRow row;
  row.value.assign(static_cast<std::size_t>(s.hidden_size), 0.0);
  row.bound.assign(static_cast<std::size_t>(s.hidden_size), 0.0);
  const double sum_error =
      std::ldexp(static_cast<double>(std::max(s.hidden_size, s.intermediate_size)), -24);
  std::vector<double> x;
  for (std::int64_t k = 0; k < s.hidden_size; ++k) {
    x.push_back(layer.number(layer.x[static_cast<std::size_t>(token * s.hidden_size + k)]));
  }
  for (std::int64_t j = 0; j < s.top_k; ++j) {
    const auto route = static_cast<std::size_t>(token * s.top_k + j);
    const std::int64_t e = layer.expert_of(route);
    if (e < 0) continue;
    const double weight = double{layer.weights[route]};
    const double in = layer.rule.router_weight_on_input ? weight : 1.0;
    // The product of a row with its error in place of the sum of sizes.
    const std::vector<double> columns = layer.ordered(0, e, x);
    const auto product = [&](int matrix, std::int64_t i) {
      RandomLayer::Dot dot = layer.dot(matrix, e, i, columns);
      const double bias = layer.bias(matrix, e, i);
      dot.sum = dot.sum * in + bias;
      dot.size = sum_error * dot.size * std::abs(in) + std::ldexp(std::abs(dot.sum), -22);
      return dot;
    };
    std::vector<double> act;
    std::vector<double> act_error;
    for (std::int64_t i = 0; i < s.intermediate_size; ++i) {
      const ExactActivation a =
          exact_activation(layer.rule, s.gated ? product(0, i) : RandomLayer::Dot{}, product(1, i));
      act.push_back(a.value);
      // The second is half the smallest step of f16.
      act_error.push_back(a.error + std::ldexp(std::abs(a.value) + a.error, layer.rounding()) +
                          (layer.x_type == ActivationType::f16 ? 0x1p-25 : 0));
    }
    act = layer.ordered(2, e, std::move(act));
    act_error = layer.ordered(2, e, std::move(act_error));
    const double out = layer.rule.router_weight_on_input ? 1.0 : weight;
    for (std::int64_t n = 0; n < s.hidden_size; ++n) {
      const RandomLayer::Dot down = layer.dot(2, e, n, act);
      const double value = down.sum + layer.bias(2, e, n);
      const double error = layer.dot(2, e, n, act_error).size + sum_error * down.size +
                           std::ldexp(std::abs(value), -22);
      row.value[static_cast<std::size_t>(n)] += out * value;
      row.bound[static_cast<std::size_t>(n)] += std::abs(out) * error;
    }
  }
  for (std::size_t n = 0; n < row.value.size(); ++n) {
    row.bound[n] += std::ldexp(std::abs(row.value[n]) + row.bound[n], layer.rounding()) +
                    (layer.x_type == ActivationType::f16 ? 0x1p-25 : 1e-30);
  }
  return row;
}

}  // namespace fewbit::cuda
