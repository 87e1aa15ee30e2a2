// SPDX-License-Identifier: Apache-2.0
// The activation formulas, element by element, for float and double, host and device.
#pragma once

#include <cmath>
#include <limits>

#include "core/hd.hpp"

namespace fewbit {

// Parameters of a gated activation as plain numbers.
struct ActivationConstants {
  float alpha = 1.0F;
  float beta = 0.0F;
  float limit = std::numeric_limits<float>::infinity();  // infinity: no clamp
};

// The gate is clamped from above only; NaN stays NaN.
template <class T>
FEWBIT_HD constexpr T clamp_gate(T gate, T limit) {
  return gate > limit ? limit : gate;
}

// up is clamped on both sides; NaN stays NaN.
template <class T>
FEWBIT_HD constexpr T clamp_up(T up, T limit) {
  if (up > limit) return limit;
  return up < -limit ? -limit : up;
}

template <class T>
FEWBIT_HD inline T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// sqrt(log(1 + exp(x)))
template <class T>
FEWBIT_HD inline T sqrt_softplus(T x) {
  return std::sqrt((x > T(0) ? x : T(0)) + std::log1p(std::exp(-std::abs(x))));
}

// x * sigmoid(x)
template <class T>
FEWBIT_HD inline T silu(T x) {
  return x / (T(1) + std::exp(-x));
}

// gate * sigmoid(alpha * gate) * (up + beta)
template <class T>
FEWBIT_HD inline T swigluoai(T gate, T up, T alpha, T beta) {
  return gate / (T(1) + std::exp(-alpha * gate)) * (up + beta);
}

// max(x, 0)^2; NaN stays NaN.
template <class T>
FEWBIT_HD constexpr T relu2(T x) {
  return x < T(0) ? T(0) : x * x;
}

// x/2 * (1 + erf(x / sqrt(2)))
template <class T>
FEWBIT_HD inline T gelu(T x) {
  constexpr T inverse_sqrt2 = T(0.70710678118654752440);
  return T(0.5) * x * (T(1) + std::erf(x * inverse_sqrt2));
}

// x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
template <class T>
FEWBIT_HD inline T gelu_tanh(T x) {
  constexpr T sqrt_2_over_pi = T(0.79788456080286535588);
  return T(0.5) * x * (T(1) + std::tanh(sqrt_2_over_pi * (x + T(0.044715) * x * x * x)));
}

}  // namespace fewbit
