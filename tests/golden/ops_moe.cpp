// SPDX-License-Identifier: Apache-2.0
// The fused MoE forward pass: the formulas in double and with staged bf16 roundings, and every
// backend that accepts the layer on this machine.
#include <algorithm>
#include <cmath>

#include "backends/reference/moe_reference.hpp"
#include "backends/rounding_bound.hpp"
#include "core/aligned_buffer.hpp"
#include "core/float_convert.hpp"
#include "fewbit/moe.hpp"
#include "golden/moe_case.hpp"
#include "golden/ops.hpp"

namespace fewbit::golden {
namespace {

MoeReferenceInput input_of(const MoeCall& call) {
  return {.tokens = call.tokens,
          .hidden = call.hidden_f32,
          .topk_ids = call.ids,
          .topk_weights = call.router_weights,
          .expert_map = call.expert_map};
}

Result<MoeReferenceResult> formulas(const MoeLayerCase& layer, const MoeCall& call,
                                    MoeRounding rounding) {
  return moe_reference(layer.weights, input_of(call),
                       {.activation = layer.problem.activation,
                        .router_weight_side = layer.problem.router_weight_side,
                        .rounding = rounding});
}

double bf16(double x) { return bf16_to_f32(f32_to_bf16(static_cast<float>(x))); }

Tensor bf16_tensor(Shape shape, const std::vector<double>& values) {
  std::vector<std::uint16_t> bits;
  bits.reserve(values.size());
  for (const double x : values) bits.push_back(f32_to_bf16(static_cast<float>(x)));
  return tensor_of(DType::bf16, std::move(shape), bits);
}

Tensor f32_tensor(Shape shape, const std::vector<double>& values) {
  return tensor_of(DType::f32, std::move(shape), std::vector<float>(values.begin(), values.end()));
}

// Rows that the set gives only in some cases.
void add_trace(const GoldenCase& c, const MoeReferenceTrace& trace, std::int64_t routes,
               Outputs& outputs) {
  const auto add = [&](const char* role, const std::vector<double>& rows) {
    if (!c.wants(role) || routes == 0) return;
    outputs[role] = bf16_tensor({routes, static_cast<std::int64_t>(rows.size()) / routes}, rows);
  };
  add("fc1_bf16", trace.fc1);
  add("activated_bf16", trace.activated);
  add("fc2_bf16", trace.fc2);
}

// Raises the entries of the case's layer to those of one computed layer.
Result<std::vector<float>> raised(AmaxCase amax, const std::vector<float>& computed) {
  const std::size_t begin = static_cast<std::size_t>(amax.layer) * computed.size();
  if (amax.layer < 0 || begin + computed.size() > amax.values.size()) {
    return Error{ErrorCode::inconsistent, "layer_idx lies outside activation_amax", ""};
  }
  for (std::size_t i = 0; i < computed.size(); ++i) {
    amax.values[begin + i] = std::max(amax.values[begin + i], computed[i]);
  }
  return amax.values;
}

Comparison compare_with(const Json& how, const Tensor& want, const Tensor& got) {
  GoldenCase single;
  single.outputs["out"] = {.tensor = want, .compare = &how};
  return compare_output(single, "out", {{"out", got}});
}

Result<void> require(const Comparison& comparison, const std::string& what) {
  if (comparison.passed) return {};
  return Error{ErrorCode::inconsistent, comparison.detail, what};
}

struct LayerOutput {
  Tensor out;  // bf16
  std::vector<float> amax;
};

Result<LayerOutput> run_layer(const MoeLayer& layer, const MoeCall& call, AmaxCase amax) {
  FEWBIT_TRY(const std::uint64_t bytes, layer.workspace_bytes(call.tokens));
  FEWBIT_TRY(AlignedBuffer workspace, AlignedBuffer::allocate(bytes));
  FEWBIT_TRY(AlignedBuffer hidden, AlignedBuffer::allocate(call.hidden.view.bytes.size()));
  std::ranges::copy(call.hidden.view.bytes, hidden.data());
  std::vector<std::uint16_t> out(call.hidden_f32.size());
  MoeArgs args;
  args.tokens = call.tokens;
  args.hidden = call.hidden.view;
  args.hidden.bytes = hidden.span();
  args.topk_ids = call.ids;
  args.topk_weights = call.router_weights;
  args.expert_map = call.expert_map;
  args.out = std::as_writable_bytes(std::span(out));
  if (!amax.values.empty()) {
    args.amax = AmaxTable{.values = amax.values,
                          .layers = amax.layers,
                          .experts = layer.problem().num_experts,
                          .layer = amax.layer};
  }
  args.workspace = workspace.span();
  FEWBIT_TRY(layer.run(args, serial_executor()));
  return LayerOutput{.out = tensor_of(DType::bf16, call.hidden.view.shape, out),
                     .amax = std::move(amax.values)};
}

// Where `got` is further from `want` than `bound`.
Comparison within(const std::vector<float>& got, const std::vector<double>& want,
                  const std::vector<double>& bound) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) continue;
    // 1/16 more: backends may add products in f32.
    if (!(std::abs(got[i] - want[i]) <= bound[i] * 17 / 16)) {
      return {false, "element " + std::to_string(i) + ": got " + std::to_string(got[i]) +
                         ", want " + std::to_string(want[i]) + " within " +
                         std::to_string(bound[i])};
    }
  }
  return {true, ""};
}

// A backend rounds the activated row and the output to bf16, once each: it must be that close to
// the unrounded result.
Result<void> check_backend(const GoldenCase& c, const std::string& name, const MoeLayerCase& layer,
                           const MoeCall& call, const MoeReferenceResult& exact) {
  FEWBIT_TRY(const DeviceInfo device, detect_cpu());
  FEWBIT_TRY(const Selection selection, select_backend(layer.problem, device, {.backend = name}));
  FEWBIT_TRY(const MoeLayer prepared,
             MoeLayer::prepare(selection, layer.problem, layer.weights, device, serial_executor()));
  FEWBIT_TRY(const AmaxCase amax, load_amax(c));
  FEWBIT_TRY(const LayerOutput got, run_layer(prepared, call, amax));
  FEWBIT_TRY(const std::vector<float> out, as_f32(got.out));
  FEWBIT_TRY(const std::vector<double> bound,
             test::rounding_bound(layer.problem, layer.weights, input_of(call), exact));
  const std::string what = c.name + " backend " + name;
  FEWBIT_TRY(require(within(out, exact.out, bound), what));
  if (c.wants("activation_amax")) {
    const Expected& want = c.outputs.at("activation_amax");
    FEWBIT_TRY(const std::vector<float> table, raised(amax, exact.amax));
    const Shape& shape = want.tensor.view.shape;
    FEWBIT_TRY(require(compare_with(*want.compare, tensor_of(DType::f32, shape, table),
                                    tensor_of(DType::f32, shape, got.amax)),
                       what + " activation_amax"));
  }
  return {};
}

// All that accept the layer here; the reference always does.
Result<void> check_backends(const GoldenCase& c, const MoeLayerCase& layer, const MoeCall& call,
                            const MoeReferenceResult& exact) {
  if (call.hidden.view.dtype != DType::bf16) return {};
  FEWBIT_TRY(const DeviceInfo device, detect_cpu());
  FEWBIT_TRY(const Selection selection,
             select_backend(layer.problem, device, {.backend = "reference"}));
  for (const Candidate& candidate : selection.candidates) {
    if (!candidate.refusals.empty()) continue;
    FEWBIT_TRY(check_backend(c, candidate.backend, layer, call, exact));
  }
  return {};
}

// out[token] += bf16(bf16(down(activated)) * weight) for one route, rounded to bf16.
Result<void> add_route(const QuantizedTensor& down, std::span<const double> activated,
                       double router_weight, std::span<double> out) {
  std::vector<float> row(activated.size());
  for (std::size_t h = 0; h < out.size(); ++h) {
    FEWBIT_TRY(dequantize_rows(down, static_cast<std::int64_t>(h), row));
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) sum += double{row[i]} * bf16(activated[i]);
    out[h] = bf16(out[h] + bf16(bf16(sum) * router_weight));
  }
  return {};
}

// The activated row rounded once, each route rounded before and after the router weight, routes
// added in bf16 in the order of experts.
Result<std::vector<double>> added_by_expert(const MoeLayerCase& layer, const MoeCall& call,
                                            const MoeReferenceResult& exact) {
  const auto hidden = static_cast<std::size_t>(layer.problem.hidden_size);
  const auto width = static_cast<std::size_t>(layer.problem.intermediate_size);
  const auto top_k = static_cast<std::size_t>(layer.problem.top_k);
  std::vector<double> out(exact.out.size());
  for (std::size_t e = 0; e < layer.weights.experts.size(); ++e) {
    for (std::size_t route = 0; route < call.ids.size(); ++route) {
      if (call.ids[route] != static_cast<std::int32_t>(e)) continue;
      FEWBIT_TRY(add_route(layer.weights.experts[e].down,
                           std::span(exact.trace.activated).subspan(route * width, width),
                           call.router_weights[route],
                           std::span(out).subspan(route / top_k * hidden, hidden)));
    }
  }
  return out;
}

}  // namespace

Result<Outputs> moe_forward(const GoldenCase& c) {
  FEWBIT_TRY(
      MoeLayerCase layer,
      load_moe_layer(
          c, {.w13 = "w13", .w13_scales = "w13_scale", .w2 = "w2", .w2_scales = "w2_scale"}));
  FEWBIT_TRY(const bool on_input, c.bool_param("apply_router_weight_on_input"));
  layer.problem.router_weight_side = on_input ? RouterWeightSide::input : RouterWeightSide::output;
  FEWBIT_TRY(const MoeCall call, load_moe_call(c, "a"));
  FEWBIT_TRY(const MoeReferenceResult exact, formulas(layer, call, MoeRounding::none));
  FEWBIT_TRY(const MoeReferenceResult staged, formulas(layer, call, MoeRounding::staged_bf16));
  FEWBIT_TRY(check_backends(c, layer, call, exact));
  const Shape shape{call.tokens, layer.problem.hidden_size};
  Outputs outputs;
  outputs["out_f64"] = tensor_of(DType::f64, shape, exact.out);
  outputs["out_bf16"] = bf16_tensor(shape, staged.out);
  add_trace(c, staged.trace, static_cast<std::int64_t>(call.ids.size()), outputs);
  if (c.wants("activation_amax")) {
    FEWBIT_TRY(const AmaxCase amax, load_amax(c));
    FEWBIT_TRY(const std::vector<float> table, raised(amax, staged.amax));
    outputs["activation_amax"] =
        tensor_of(DType::f32, c.outputs.at("activation_amax").tensor.view.shape, table);
  }
  return outputs;
}

Result<Outputs> moe_reference_nvfp4(const GoldenCase& c) {
  FEWBIT_TRY(const MoeLayerCase layer, load_moe_layer(c, {.w13 = "w13_fp4",
                                                          .w13_scales = "w13_blockscale_plain",
                                                          .w2 = "w2_fp4",
                                                          .w2_scales = "w2_blockscale_plain"}));
  FEWBIT_TRY(const MoeCall call, load_moe_call(c, "x"));
  FEWBIT_TRY(const MoeReferenceResult exact, formulas(layer, call, MoeRounding::none));
  FEWBIT_TRY(const std::vector<double> added, added_by_expert(layer, call, exact));
  const Shape shape{call.tokens, layer.problem.hidden_size};
  Outputs outputs;
  outputs["out_f32"] = f32_tensor(shape, exact.out);
  outputs["out_bf16"] = bf16_tensor(shape, added);
  return outputs;
}

Result<Outputs> moe_reference_e8m0(const GoldenCase& c) {
  FEWBIT_TRY(const MoeLayerCase layer, load_moe_layer(c, {.w13 = "w13_fp4",
                                                          .w13_scales = "w13_e8m0_scale",
                                                          .w2 = "w2_fp4",
                                                          .w2_scales = "w2_e8m0_scale"}));
  FEWBIT_TRY(const MoeCall call, load_moe_call(c, "x"));
  FEWBIT_TRY(const MoeReferenceResult exact, formulas(layer, call, MoeRounding::none));
  return Outputs{{"out_f32", f32_tensor({call.tokens, layer.problem.hidden_size}, exact.out)}};
}

}  // namespace fewbit::golden
