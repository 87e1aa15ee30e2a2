// SPDX-License-Identifier: Apache-2.0
#include "golden/moe_case.hpp"

#include "core/checked.hpp"
#include "core/convert.hpp"

namespace fewbit::golden {
namespace {

// Part `index` of `count` equal ones, along the first dimension.
Tensor part(const Tensor& tensor, std::int64_t index, std::int64_t count) {
  const std::size_t size = tensor.view.bytes.size() / static_cast<std::size_t>(count);
  Tensor out = tensor;
  out.view.shape = {};
  out.view.bytes = tensor.view.bytes.subspan(static_cast<std::size_t>(index) * size, size);
  return out;
}

// Codes or values of all experts, with plain scales when they are packed.
struct Stack {
  Tensor codes;
  std::optional<Tensor> scales;
  std::vector<float> global_scales;
};

Result<Stack> load_stack(const GoldenCase& c, const std::string& codes, const std::string& scales,
                         const std::string& global) {
  Stack stack;
  FEWBIT_TRY(stack.codes, c.input(codes));
  if (c.has_input(scales)) {
    FEWBIT_TRY(stack.scales, c.input(scales));
  }
  FEWBIT_TRY(stack.global_scales, c.values<float>(global));
  return stack;
}

struct Slice {
  std::int64_t expert;
  std::int64_t block;  // which of `blocks` equal runs of rows
  std::int64_t blocks;
};

// e2m1 codes with one e8m0 scale for 32 k, the last one for fewer.
Result<QuantizedTensor> make_e8m0(std::int64_t n, std::int64_t k, Tensor codes, Tensor scales,
                                  float global_scale) {
  QuantizedTensor tensor;
  tensor.n = n;
  tensor.k = k;
  tensor.scheme = nvfp4_scheme();
  tensor.scheme.scale->dtype = DType::f8_e8m0;
  tensor.scheme.scale->granularity = {1, 32};
  tensor.codes = std::move(codes);
  tensor.codes.view.shape = {n, k / 2};
  tensor.scales = std::move(scales);
  tensor.scales.view.shape = {n, ceil_div<std::int64_t>(k, 32)};
  tensor.global_scale = global_scale;
  FEWBIT_TRY(check_quantized(tensor));
  return tensor;
}

// Matrix [n, k] of an expert.
Result<QuantizedTensor> matrix(const Stack& stack, const Slice& slice, std::int64_t n,
                               std::int64_t k) {
  const auto experts = static_cast<std::int64_t>(stack.global_scales.size());
  const auto cut = [&](const Tensor& all) {
    return part(part(all, slice.expert, experts), slice.block, slice.blocks);
  };
  const float global = stack.global_scales[static_cast<std::size_t>(slice.expert)];
  if (stack.scales && stack.scales->view.dtype == DType::f8_e8m0) {
    return make_e8m0(n, k, cut(stack.codes), cut(*stack.scales), global);
  }
  if (stack.scales) return make_nvfp4(n, k, cut(stack.codes), cut(*stack.scales), global);
  return make_plain(n, k, cut(stack.codes), global);
}

// alpha, beta and limit may be absent or null; the kernels' defaults then.
Result<ActivationParams> activation_params(const GoldenCase& c) {
  ActivationParams params;
  FEWBIT_TRY(const std::string name, c.string_param("activation"));
  FEWBIT_TRY(params.kind, activation_from_name(name));
  const auto number = [&](const char* key) {
    const Json* value = c.params->find(key);
    return value == nullptr ? std::nullopt : value->as_double();
  };
  const bool oai = name == "swigluoai_uninterleave";
  params.alpha = static_cast<float>(number("swiglu_alpha").value_or(oai ? 1.702 : 1.0));
  params.beta = static_cast<float>(number("swiglu_beta").value_or(oai ? 1.0 : 0.0));
  if (const auto limit = number("swiglu_limit")) params.limit = static_cast<float>(*limit);
  return params;
}

Result<MoeWeights> build_weights(const GoldenCase& c, const MoeProblem& problem, const Stack& w13,
                                 const Stack& w2) {
  const std::int64_t hidden = problem.hidden_size;
  const std::int64_t width = problem.intermediate_size;
  const bool gated = activation_gated(problem.activation.kind);
  FEWBIT_TRY(const std::string rows, c.string_param("w13_rows"));
  const std::int64_t up_block = gated && rows.starts_with("gate rows first") ? 1 : 0;
  const std::int64_t blocks = gated ? 2 : 1;
  MoeWeights weights{.hidden_size = hidden, .intermediate_size = width, .experts = {}};
  for (std::int64_t e = 0; e < problem.num_experts; ++e) {
    ExpertWeights expert;
    if (gated) {
      FEWBIT_TRY(expert.gate, matrix(w13, {e, 1 - up_block, blocks}, width, hidden));
    }
    FEWBIT_TRY(expert.up, matrix(w13, {e, up_block, blocks}, width, hidden));
    FEWBIT_TRY(expert.down, matrix(w2, {e, 0, 1}, hidden, width));
    weights.experts.push_back(std::move(expert));
  }
  return weights;
}

Result<MoeLayerCase> build_layer(const GoldenCase& c, const Stack& w13, const Stack& w2) {
  MoeLayerCase layer;
  MoeProblem& problem = layer.problem;
  FEWBIT_TRY(problem.hidden_size, c.int_param("hidden_size"));
  FEWBIT_TRY(problem.intermediate_size, c.int_param("intermediate_size"));
  FEWBIT_TRY(problem.num_experts, c.int_param("experts"));
  FEWBIT_TRY(problem.max_tokens, c.int_param("M"));
  FEWBIT_TRY(const std::int64_t top_k, c.int_param("topk"));
  problem.top_k = static_cast<int>(top_k);
  FEWBIT_TRY(problem.activation, activation_params(c));
  problem.expert_map = c.has_input("expert_map");
  problem.where = c.name;
  for (const Stack* stack : {&w13, &w2}) {
    if (static_cast<std::int64_t>(stack->global_scales.size()) != problem.num_experts) {
      return Error{ErrorCode::inconsistent,
                   std::to_string(stack->global_scales.size()) + " global scales for " +
                       std::to_string(problem.num_experts) + " experts",
                   c.name};
    }
  }
  FEWBIT_TRY(layer.weights, build_weights(c, problem, w13, w2));
  problem.gate_up = layer.weights.experts.front().up.scheme;
  problem.down = layer.weights.experts.front().down.scheme;
  return layer;
}

}  // namespace

Result<std::vector<float>> as_f32(const Tensor& tensor) {
  FEWBIT_TRY(const std::int64_t count, shape_elements(tensor.view.shape));
  std::vector<float> values(static_cast<std::size_t>(count));
  FEWBIT_TRY(convert_to_f32(tensor.view.dtype, tensor.view.bytes, values));
  return values;
}

Result<MoeLayerCase> load_moe_layer(const GoldenCase& c, const MoeTensorNames& names) {
  FEWBIT_TRY(const Stack w13, load_stack(c, names.w13, names.w13_scales, "w13_global_scale"));
  FEWBIT_TRY(const Stack w2, load_stack(c, names.w2, names.w2_scales, "w2_global_scale"));
  return build_layer(c, w13, w2);
}

Result<MoeCall> load_moe_call(const GoldenCase& c, const std::string& hidden) {
  MoeCall call;
  FEWBIT_TRY(call.tokens, c.int_param("M"));
  FEWBIT_TRY(call.hidden, c.input(hidden));
  FEWBIT_TRY(call.hidden_f32, as_f32(call.hidden));
  FEWBIT_TRY(call.ids, c.values<std::int32_t>("topk_ids"));
  FEWBIT_TRY(call.router_weights, c.values<float>("topk_weights"));
  if (c.has_input("expert_map")) {
    FEWBIT_TRY(call.expert_map, c.values<std::int32_t>("expert_map"));
  }
  return call;
}

Result<AmaxCase> load_amax(const GoldenCase& c) {
  AmaxCase amax;
  if (!c.has_input("activation_amax")) return amax;
  FEWBIT_TRY(amax.values, c.values<float>("activation_amax"));
  FEWBIT_TRY(amax.layers, c.int_param("num_layers"));
  FEWBIT_TRY(amax.layer, c.int_param("layer_idx"));
  return amax;
}

}  // namespace fewbit::golden
