// SPDX-License-Identifier: Apache-2.0
// Biases beside matrices, and how many experts the tensors of a layer hold.
#include <fmt/format.h>

#include <map>

#include "scheme/name_parts.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

bool is_read(DType dtype) {
  return dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

Shape bias_shape(const Validation& validation, const Module& module) {
  if (module.experts > 0) return {module.experts, module.n};
  const TensorInfo* weight = validation.checkpoint.find(module.part("weight"));
  // The kernel of a convolution begins with its outputs.
  const bool kernel = weight != nullptr && !module.scheme.quantized() && weight->shape.size() > 2;
  return {kernel ? weight->shape.front() : module.n};
}

void check_bias(Validation& validation, const Module& module) {
  const TensorInfo* bias = validation.checkpoint.find(module.part("bias"));
  if (bias == nullptr || module.n < 1 || module.k < 1 || !module.unreadable.empty()) return;
  if (!is_projection(module.role) && module.role != Role::attention_other) return;
  const Shape expected = bias_shape(validation, module);
  if (bias->shape != expected) {
    validation.add(module, Level::error, "bias-shape", bias->name, shape_text(bias->shape),
                   shape_text(expected) + ", one value a row of the matrix");
  }
  if (!is_read(bias->dtype)) {
    validation.add(module, Level::error, "bias-dtype", bias->name,
                   std::string(dtype_name(bias->dtype)), "f32, bf16 or f16");
  }
}

}  // namespace

void validate_biases(Validation& validation) {
  for (const Module& module : validation.identified.modules) check_bias(validation, module);
}

// Tensors that hold all experts of a layer hold the same ones.
void validate_fused_counts(Validation& validation) {
  struct First {
    const Module* fused = nullptr;
    const Module* router = nullptr;
  };
  std::map<std::string, First> layers;
  for (const Module& module : validation.identified.modules) {
    if (module.layer < 0 || module.role != Role::router || module.k < 1) continue;
    layers[layer_path(module.name)].router = &module;
  }
  for (const Module& module : validation.identified.modules) {
    if (module.layer < 0 || module.experts < 1 || !module.unreadable.empty()) continue;
    First& first = layers[layer_path(module.name)];
    if (first.fused == nullptr) {
      first.fused = &module;
    } else if (first.fused->experts != module.experts) {
      validation.add(module, Level::error, "experts-count", module.name,
                     fmt::format("{} experts", module.experts),
                     fmt::format("{} as in {}", first.fused->experts, first.fused->name));
    }
  }
  for (const auto& [layer, first] : layers) {
    if (first.fused == nullptr || first.router == nullptr) continue;
    if (first.router->n == first.fused->experts) continue;
    validation.add(*first.fused, Level::error, "experts-count", first.fused->name,
                   fmt::format("{} experts", first.fused->experts),
                   fmt::format("{}, one for each row of {}", first.router->n, first.router->name));
  }
}

}  // namespace fewbit
