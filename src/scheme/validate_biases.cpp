// SPDX-License-Identifier: Apache-2.0
// Biases beside matrices.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/float_types.hpp"
#include "scheme/name_parts.hpp"
#include "scheme/part_of_model.hpp"
#include "scheme/validation.hpp"

namespace fewbit {
namespace {

// Families whose linear layers are Conv1D, which holds [in, out].
constexpr std::string_view conv1d_families[] = {
    "gpt2", "openai-gpt", "openai_gpt", "decision_transformer", "imagegpt", "clvp"};
constexpr std::string_view conv1d_layers[] = {"c_attn", "c_proj", "c_fc", "q_attn"};

template <std::size_t count>
bool one_of(std::string_view text, const std::string_view (&list)[count]) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

// Other families have layers of the same names that hold [out, in]; where config.json is missing
// the bias itself tells.
bool is_conv1d(const Validation& validation, const Module& module, const TensorInfo& bias) {
  if (module.scheme.quantized() || !one_of(split_dots(module.name).back(), conv1d_layers)) {
    return false;
  }
  const std::string type = read_model_hints(validation.checkpoint).model_type;
  return type.empty() ? bias.shape == Shape{module.k} : one_of(type, conv1d_families);
}

Shape bias_shape(const Validation& validation, const Module& module, const TensorInfo& bias) {
  if (module.experts > 0) return {module.experts, module.n};
  if (is_conv1d(validation, module, bias)) return {module.k};
  const TensorInfo* weight = validation.checkpoint.find(module.part("weight"));
  // The kernel of a convolution begins with its outputs.
  const bool kernel = weight != nullptr && !module.scheme.quantized() && weight->shape.size() > 2;
  return {kernel ? weight->shape.front() : module.n};
}

// Heads of encoders and routers have biases of their own, projections do not.
void check_alone(Validation& validation, const Module& module) {
  if (module.parts.size() != 1 || !module.parts.front().tensor.ends_with(".bias")) return;
  const std::string_view last = split_dots(module.name).back();
  if (module.layer < 0 || module.expert != -1 || !last.ends_with("_proj") ||
      is_part_of_model(validation.checkpoint))
    return;
  validation.add(module, Level::warning, "tensor-missing", module.parts.front().tensor,
                 "a bias alone", "a weight beside it");
}

void check_bias(Validation& validation, const Module& module) {
  const TensorInfo* bias = validation.checkpoint.find(module.part("bias"));
  if (bias == nullptr || module.n < 1 || module.k < 1 || !module.unreadable.empty()) return;
  if (!is_projection(module.role) && module.role != Role::attention_other) return;
  const Shape expected = bias_shape(validation, module, *bias);
  const bool columns = expected == Shape{module.k} && module.k != module.n;
  if (bias->shape != expected) {
    validation.add(module, Level::error, "bias-shape", bias->name, shape_text(bias->shape),
                   fmt::format("{}, one value {} of the matrix", shape_text(expected),
                               columns ? "a column" : "a row"));
  }
  if (!is_16_or_32_bit_float(bias->dtype)) {
    validation.add(module, Level::error, "bias-dtype", bias->name,
                   std::string(dtype_name(bias->dtype)), "f32, bf16 or f16");
  }
}

}  // namespace

void validate_biases(Validation& validation) {
  for (const Module& module : validation.identified.modules) {
    check_bias(validation, module);
    check_alone(validation, module);
  }
}

}  // namespace fewbit
