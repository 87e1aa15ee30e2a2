// SPDX-License-Identifier: Apache-2.0
// From ActivationParams to a formula of activation.hpp.
#pragma once

#include <limits>

#include "core/hd.hpp"
#include "fewbit/scheme.hpp"
#include "moe/activation.hpp"

namespace fewbit {

inline ActivationConstants activation_constants(const ActivationParams& params) {
  ActivationConstants constants{.alpha = params.alpha, .beta = params.beta};
  if (params.limit) constants.limit = *params.limit;
  return constants;
}

// One element of the activated row from its fc1 elements. The limit clamps gate and up before any
// gated activation. relu2 has no gate: it takes `up` and ignores `gate` and the constants.
template <class T>
FEWBIT_HD inline T activate(Activation kind, T gate, T up, const ActivationConstants& constants) {
  const T g = clamp_gate(gate, T(constants.limit));
  const T u = clamp_up(up, T(constants.limit));
  switch (kind) {
    case Activation::silu:
      return silu(g) * u;
    case Activation::swigluoai:
      return swigluoai(g, u, T(constants.alpha), T(constants.beta));
    case Activation::relu2:
      return relu2(up);
    case Activation::gelu:
      return gelu(g) * u;
    case Activation::gelu_tanh:
      return gelu_tanh(g) * u;
  }
  return std::numeric_limits<T>::quiet_NaN();
}

}  // namespace fewbit
