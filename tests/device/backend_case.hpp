// SPDX-License-Identifier: Apache-2.0
// Layers of the backend cuda_moe from random weights, and runs of them with arguments on the host
// or on the device, for its tests.
#pragma once

#include <gtest/gtest.h>

#include "backends/cuda_moe/cuda_moe.hpp"
#include "device/canonical_layer.hpp"
#include "device/card_test.hpp"
#include "device/device_layer.hpp"
#include "device/exact_layer.hpp"
#include "select/prepare_moe.hpp"

namespace fewbit::cuda {

struct Case {
  const char* name;
  CellFormat format;
  std::int64_t tokens;
  ActivationParams activation;
  bool biases = false;
  bool map = false;
  RouterWeightSide side = RouterWeightSide::output;
  bool ordered = false;  // act-order
  ActivationType x_type = ActivationType::bf16;
};

inline const ActivationParams oai{
    .kind = Activation::swigluoai, .alpha = 1.702F, .beta = 1.0F, .limit = 7.0F};
inline const std::vector<Case> cases = {
    {"NVFP4, silu", nvfp4_cells, 5, {}},
    {"NVFP4, silu, many tokens", nvfp4_cells, 90, {}},
    {"MXFP4, swigluoai with biases", mxfp4_cells, 7, oai, true, false},
    {"MXFP4, swigluoai, biases and a map, many tokens", mxfp4_cells, 130, oai, true, true,
     RouterWeightSide::input},
    {"NVFP4, relu2 with a map", nvfp4_cells, 33, {.kind = Activation::relu2}, false, true},
    {"MXFP4, gelu", mxfp4_cells, 20, {.kind = Activation::gelu}},
    {"INT4 in rows of 128 k, silu", int4_cells(4, false, true), 6, {}},
    {"INT4 in groups of 32, many tokens", int4_cells(1, false, false), 120, {}},
    {"INT4 with zero points, relu2 with a map",
     int4_cells(4, true, false),
     33,
     {.kind = Activation::relu2},
     false,
     true},
    {"INT4 in groups of 32 with zero points, swigluoai with biases", int4_cells(1, true, true), 70,
     oai, true, false},
    {"INT8 in rows of 128 k", int8_cells(4, false, true), 6, {}},
    {"INT8 in groups of 32 with zero points, swigluoai with biases", int8_cells(1, true, false), 70,
     oai, true, false},
    {"INT4 in act-order",
     int4_cells(1, false, true),
     7,
     {},
     false,
     false,
     RouterWeightSide::output,
     true},
    {"INT4 in act-order with zero points, biases and a map, many tokens",
     int4_cells(1, true, false), 130, oai, true, true, RouterWeightSide::input, true},
    {"INT8 in act-order, relu2 with biases",
     int8_cells(1, false, true),
     20,
     {.kind = Activation::relu2},
     true,
     false,
     RouterWeightSide::output,
     true},
    {"MXFP8", {.kind = CellKind::mxfp8}, 9, {}},
    {"MXFP8, many tokens, with a map", {.kind = CellKind::mxfp8}, 120, oai, false, true},
    {"FP8 in blocks", f8_cells(F8Scales::block), 5, {}},
    {"FP8 in blocks, many tokens, with a map", f8_cells(F8Scales::block), 130, oai, false, true},
    {"FP8 in rows with biases", f8_cells(F8Scales::row), 9, {}, true, false},
    {"FP8 in rows, many tokens", f8_cells(F8Scales::row), 100, {}},
    {"FP8 with a scale a tensor, relu2",
     f8_cells(F8Scales::tensor),
     20,
     {.kind = Activation::relu2}}};

// The same kinds in f16, few and many tokens.
inline std::vector<Case> f16_cases() {
  std::vector<Case> made;
  for (Case c : cases) {
    if (!takes_f16(c.format.kind)) continue;
    c.x_type = ActivationType::f16;
    made.push_back(c);
  }
  return made;
}

inline std::vector<float> bias_of(const RandomLayer& layer, int matrix, std::int64_t expert) {
  const auto& all = layer.biases[matrix];
  if (all.empty()) return {};
  const auto begin = all.begin() + expert * layer.rows(matrix);
  return {begin, begin + layer.rows(matrix)};
}

inline MoeWeights weights_of(const RandomLayer& layer) {
  MoeWeights weights{.hidden_size = layer.shape.hidden_size,
                     .intermediate_size = layer.shape.intermediate_size,
                     .experts = {}};
  for (std::int64_t e = 0; e < layer.shape.experts; ++e) {
    ExpertWeights expert;
    if (layer.shape.gated) {
      expert.gate = matrix_of(layer, 0, e);
      expert.gate_bias = bias_of(layer, 0, e);
    }
    expert.up = matrix_of(layer, 1, e);
    expert.up_bias = bias_of(layer, 1, e);
    expert.down = matrix_of(layer, 2, e);
    expert.down_bias = bias_of(layer, 2, e);
    weights.experts.push_back(std::move(expert));
  }
  return weights;
}

inline MoeProblem problem_of(const Case& c, const MoeWeights& weights) {
  MoeProblem problem;
  problem.hidden_size = weights.hidden_size;
  problem.intermediate_size = weights.intermediate_size;
  problem.num_experts = std::ssize(weights.experts);
  problem.top_k = 2;
  problem.gate_up = weights.experts.front().up.scheme;
  problem.down = weights.experts.front().down.scheme;
  problem.activation = c.activation;
  problem.router_weight_side = c.side;
  problem.expert_map = c.map;
  if (c.x_type == ActivationType::f16) problem.activation_dtype = DType::f16;
  problem.biases = c.biases;
  problem.max_tokens = 200;
  problem.where = c.name;
  return problem;
}

inline RandomLayer layer_of(const Case& c) {
  StreamShape shape{
      .tokens = c.tokens, .top_k = 2, .experts = 4, .hidden_size = 192, .intermediate_size = 128};
  shape.gated = activation_gated(c.activation.kind);
  RandomLayer layer = random_layer(c.format, shape, 21);
  if (c.biases) add_biases(layer, 22);
  if (c.ordered) add_orders(layer, 23);
  if (c.x_type == ActivationType::f16) use_f16(layer, 24);
  if (c.map) {
    layer.expert_map = {2, -1, 0, 3, 1, 9};
    for (std::size_t i = 0; i < layer.ids.size(); i += 3) layer.ids[i] = static_cast<int>(i % 8);
  }
  return layer;
}

class CudaBackendTest : public CardTest {
 protected:
  Result<MoeLayer> prepare(const MoeProblem& problem, const MoeWeights& weights) {
    FEWBIT_TRY(const Selection selection, select_backend(problem, device_));
    if (selection.chosen != "cuda_moe") {
      return Error{ErrorCode::inconsistent, "chosen: " + selection.chosen, ""};
    }
    return MoeLayer::prepare(selection, problem, weights, device_, *executor_);
  }

  // The same, packed on the host.
  Result<MoeLayer> open(const MoeProblem& problem, const MoeWeights& weights) {
    Backend on_host = cuda_moe_backend;
    on_host.prepare_moe = nullptr;
    FEWBIT_TRY(auto prepared, prepare_moe(on_host, problem, weights, *executor_));
    return MoeLayer(problem, std::move(prepared));
  }

  MoeArgs args_of(const RandomLayer& layer, std::span<std::uint16_t> out) {
    MoeArgs args;
    args.tokens = layer.shape.tokens;
    args.hidden = {.dtype = layer.x_type == ActivationType::f16 ? DType::f16 : DType::bf16,
                   .shape = {layer.shape.tokens, layer.shape.hidden_size},
                   .bytes = std::as_bytes(std::span(layer.x)),
                   .device = {}};
    args.topk_ids = layer.ids;
    args.topk_weights = layer.weights;
    args.expert_map = layer.expert_map;
    args.out = std::as_writable_bytes(out);
    return args;
  }

  Result<std::vector<std::uint16_t>> run(const MoeLayer& moe, const RandomLayer& layer) {
    std::vector<std::uint16_t> out(layer.x.size(), 0x7FC0);
    FEWBIT_TRY(moe.run(args_of(layer, out), *executor_));
    return out;
  }

  // By the layer's own router, from these logits or, without any, by its projection.
  Result<std::vector<std::uint16_t>> run_routed(const MoeLayer& moe, const RandomLayer& layer,
                                                std::span<const float> logits) {
    std::vector<std::uint16_t> out(layer.x.size(), 0x7FC0);
    MoeArgs args = args_of(layer, out);
    args.topk_ids = {};
    args.topk_weights = {};
    args.router_logits = logits;
    FEWBIT_TRY(moe.run(args, *executor_));
    return out;
  }

  // With logits by the layer's own router.
  Result<std::vector<std::uint16_t>> run_on_card(const MoeLayer& moe, const RandomLayer& layer,
                                                 const std::vector<float>& logits = {}) {
    FEWBIT_TRY(const device::Stream stream, device::Stream::create());
    FEWBIT_TRY(const device::Buffer x, upload(layer.x, stream));
    FEWBIT_TRY(const device::Buffer ids, upload(layer.ids, stream));
    FEWBIT_TRY(const device::Buffer weights, upload(layer.weights, stream));
    FEWBIT_TRY(const device::Buffer map, upload(layer.expert_map, stream));
    FEWBIT_TRY(const device::Buffer out, device::Buffer::allocate(x.size(), stream));
    FEWBIT_TRY(const std::uint64_t bytes, moe.device_workspace_bytes(layer.shape.tokens));
    FEWBIT_TRY(const device::Buffer workspace, device::Buffer::allocate(bytes + 1024, stream));
    FEWBIT_TRY(device::fill(workspace.data(), 0xFF, workspace.size(), stream));
    const auto past = reinterpret_cast<std::uintptr_t>(workspace.data()) % 1024;
    std::vector<std::uint16_t> result(layer.x.size());
    MoeArgs args = args_of(layer, result);
    args.hidden.bytes = {x.data(), x.size()};
    args.hidden.device.kind = DeviceKind::cuda;
    args.topk_ids = {ids.as<std::int32_t>(), layer.ids.size()};
    args.topk_weights = {weights.as<float>(), layer.weights.size()};
    args.expert_map = {map.as<std::int32_t>(), layer.expert_map.size()};
    FEWBIT_TRY(const device::Buffer of_router, upload(logits, stream));
    if (!logits.empty()) {
      args.topk_ids = {};
      args.topk_weights = {};
      args.router_logits = {of_router.as<float>(), logits.size()};
    }
    args.out = {out.data(), out.size()};
    args.workspace = {workspace.data() + (past == 0 ? 0 : 1024 - past), bytes};
    args.stream = stream.handle();
    FEWBIT_TRY(moe.run(args, *executor_));
    FEWBIT_TRY(device::copy_to_host(std::as_writable_bytes(std::span(result)), out.data(), stream));
    FEWBIT_TRY(stream.synchronize());
    return result;
  }

  std::unique_ptr<Executor> executor_ = make_thread_pool(2).value();
};

inline void expect_exact_rows(const RandomLayer& layer, const std::vector<std::uint16_t>& out) {
  const std::int64_t hidden = layer.shape.hidden_size;
  for (std::int64_t t = 0; t < layer.shape.tokens; t += 3) {
    const ExactRow row = exact_row(layer, t);
    for (std::int64_t n = 0; n < hidden; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const double y = layer.number(out[static_cast<std::size_t>(t * hidden + n)]);
      ASSERT_LE(std::abs(y - row.value[at]), row.bound[at]) << "token " << t << " column " << n;
    }
  }
}

}  // namespace fewbit::cuda
