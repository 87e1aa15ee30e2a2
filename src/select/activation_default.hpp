// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fewbit/selection.hpp"

namespace fewbit {

// Activations where none are asked for: for other engines those of the model (config.json), as they
// run it, where it has f16 or bf16; else bf16.
constexpr DType default_activation_dtype(Engine engine, DType model) {
  return engine != Engine::fewbit && model == DType::f16 ? DType::f16 : DType::bf16;
}

}  // namespace fewbit
