// SPDX-License-Identifier: Apache-2.0
// Runs of a random layer by the MoE kernels, for their tests.
#pragma once

#include <gtest/gtest.h>

#include <climits>

#include "backends/cuda_moe/grouped_plan.hpp"
#include "device/card_test.hpp"
#include "device/device_layer.hpp"
#include "device/exact_layer.hpp"

namespace fewbit::cuda {

class MoeF4Test : public CardTest {
 protected:
  explicit MoeF4Test(Capabilities needed = {.least = 90, .most = INT_MAX}) : CardTest(needed) {}
  void SetUp() override {
    CardTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) card_ = card_of(device_);
  }

  StreamCard card_;
};

struct Outcome {
  std::vector<std::uint16_t> out;
  bool counters_zero = false;
};

inline HostExperts host_experts(const RandomLayer& layer) {
  return {.codes = layer.codes,
          .scales = layer.scales,
          .globals = &layer.globals,
          .biases = layer.biases,
          .zeros = layer.zeros,
          .group = layer.group,
          .f8_scales = layer.f8_scales};
}

// Weights of every kind that the kernels tell apart.
inline const std::vector<CellFormat>& all_formats() {
  static const std::vector<CellFormat> formats = {nvfp4_cells,
                                                  mxfp4_cells,
                                                  int4_cells(4, false, true),
                                                  int4_cells(1, false, false),
                                                  int4_cells(4, true, false),
                                                  int4_cells(1, true, true),
                                                  f8_cells(F8Scales::block),
                                                  f8_cells(F8Scales::row),
                                                  f8_cells(F8Scales::tensor),
                                                  {.kind = CellKind::mxfp8},
                                                  int8_cells(4, false, true),
                                                  int8_cells(1, true, false),
                                                  ternary_cells(4, true),
                                                  ternary_cells(2, true),
                                                  ternary_cells(1, false),
                                                  nf3_cells};
  return formats;
}
inline std::string name_of(const CellFormat& format) {
  if (format.kind == CellKind::f8) {
    return format.f8 == F8Scales::block ? "f8 block" : format.f8 == F8Scales::row ? "f8 row" : "f8";
  }
  if (format.kind == CellKind::mxfp8) return "mxfp8";
  if (format.kind == CellKind::nf3) return "nf3";
  if (!has_int_cells(format.kind)) return format.kind == CellKind::nvfp4 ? "nvfp4" : "mxfp4";
  return "int" + std::to_string(format.ints.bits) + " scale_cells " +
         std::to_string(format.ints.scale_cells) + (format.ints.zeros ? " zeros" : "") +
         (format.f16_scales ? " f16" : " bf16");
}

inline Result<Outcome> run(const RandomLayer& layer, const StreamPlan& plan, int repeats = 1) {
  FEWBIT_TRY(device::Stream stream, device::Stream::create());
  FEWBIT_TRY(const DeviceWeights weights,
             prepare_weights(layer.format, layer.shape, host_experts(layer), stream));
  FEWBIT_TRY(const DeviceCall call, make_call(plan,
                                              {&layer.x, &layer.ids, &layer.weights, layer.rule,
                                               &layer.expert_map, layer.x_type},
                                              stream));
  const MoeF4Args args = call.args(weights);
  Outcome first;
  first.out.resize(call.out.size() / 2);
  for (int i = 0; i < repeats; ++i) {
    FEWBIT_TRY(device::fill(call.out.data(), 0xFF, call.out.size(), stream));
    FEWBIT_TRY(device::check(launch_moe_f4(layer.format, plan, args, stream.handle()), "moe_f4"));
    std::vector<std::uint16_t> out(first.out.size());
    FEWBIT_TRY(
        device::copy_to_host(std::as_writable_bytes(std::span(out)), call.out.data(), stream));
    FEWBIT_TRY(stream.synchronize());
    if (i == 0) first.out = out;
    if (out != first.out) {
      return Error{ErrorCode::inconsistent, "run " + std::to_string(i) + " differs from the first",
                   ""};
    }
  }
  std::vector<std::uint32_t> counters(call.counters.size() / 4);
  FEWBIT_TRY(device::copy_to_host(std::as_writable_bytes(std::span(counters)), call.counters.data(),
                                  stream));
  FEWBIT_TRY(stream.synchronize());
  first.counters_zero =
      std::all_of(counters.begin(), counters.end(), [](auto c) { return c == 0; });
  return first;
}

inline void expect_exact(const RandomLayer& layer, const Outcome& outcome, std::int64_t every) {
  const std::int64_t hidden = layer.shape.hidden_size;
  EXPECT_TRUE(outcome.counters_zero);
  double worst = 0;
  double difference = 0;
  double size = 0;
  for (std::int64_t t = 0; t < layer.shape.tokens; t += every) {
    const ExactRow row = exact_row(layer, t);
    for (std::int64_t n = 0; n < hidden; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const double y = layer.number(outcome.out[static_cast<std::size_t>(t * hidden + n)]);
      const double error = std::abs(y - row.value[at]);
      ASSERT_LE(error, row.bound[at])
          << "token " << t << " column " << n << " is " << y << ", exact " << row.value[at];
      worst = std::max(worst, error / row.bound[at]);
      difference += error * error;
      size += row.value[at] * row.value[at];
    }
  }
  std::printf("    relative error %.2e, worst element at %.2f of its bound\n",
              std::sqrt(difference / std::max(size, 1e-300)), worst);
}

// The same by the grouped kernels, with scratch that begins as NaN.
inline Result<Outcome> run_grouped(const RandomLayer& layer, const StreamCard& card,
                                   int repeats = 1, int item_rows = 0) {
  FEWBIT_TRY(const GroupedPlan plan, plan_grouped(layer.shape, card, item_rows));
  FEWBIT_TRY(device::Stream stream, device::Stream::create());
  FEWBIT_TRY(const DeviceWeights weights,
             prepare_weights(layer.format, layer.shape, host_experts(layer), stream));
  StreamPlan sizes;  // of the buffers that a call has in any case
  sizes.tokens = plan.tokens;
  sizes.hidden = plan.hidden;
  FEWBIT_TRY(const DeviceCall call, make_call(sizes,
                                              {&layer.x, &layer.ids, &layer.weights, layer.rule,
                                               &layer.expert_map, layer.x_type},
                                              stream));
  const auto bytes = static_cast<std::uint64_t>(plan.scratch_bytes);
  FEWBIT_TRY(const device::Buffer scratch, device::Buffer::allocate(bytes, stream));
  const MoeF4Args args = call.args(weights);
  Outcome first{.out = std::vector<std::uint16_t>(call.out.size() / 2), .counters_zero = true};
  for (int i = 0; i < repeats; ++i) {
    FEWBIT_TRY(device::fill(scratch.data(), 0xFF, bytes, stream));
    FEWBIT_TRY(device::fill(call.out.data(), 0xFF, call.out.size(), stream));
    FEWBIT_TRY(device::check(
        launch_moe_f4_grouped(layer.format, plan, args, scratch.data(), stream.handle()),
        "moe_f4_grouped"));
    std::vector<std::uint16_t> out(first.out.size());
    FEWBIT_TRY(
        device::copy_to_host(std::as_writable_bytes(std::span(out)), call.out.data(), stream));
    FEWBIT_TRY(stream.synchronize());
    if (i == 0) first.out = out;
    if (out != first.out) {
      return Error{ErrorCode::inconsistent, "run " + std::to_string(i) + " differs from the first",
                   ""};
    }
  }
  return first;
}

struct RuleCase {
  const char* name;
  MoeF4Rule rule;
  bool biases;
  bool map;
};
inline std::vector<RuleCase> rule_cases() {
  const ActivationConstants oai{.alpha = 1.702F, .beta = 1.0F, .limit = 7.0F};
  const ActivationConstants clamped{.alpha = 1.0F, .beta = 0.0F, .limit = 0.5F};
  return {{"silu with a limit", {F4Activation::swiglu, clamped, false}, false, false},
          {"silu with biases and a map", {F4Activation::swiglu, {}, false}, true, true},
          {"swigluoai with biases", {F4Activation::swiglu, oai, false}, true, false},
          {"swigluoai, router weight on the input", {F4Activation::swiglu, oai, true}, true, true},
          {"gelu", {F4Activation::gelu, {}, false}, false, true},
          {"gelu_tanh with a limit", {F4Activation::gelu_tanh, clamped, false}, true, false},
          {"relu2 without a gate", {F4Activation::relu2, {}, false}, true, true},
          {"relu2, router weight on the input", {F4Activation::relu2, {}, true}, false, false}};
}

// A layer of a rule; with a map, ids are those of twice as many experts, half of them elsewhere,
// and some outside.
inline RandomLayer layer_of(CellFormat format, StreamShape shape, const RuleCase& c) {
  shape.gated = f4_gated(c.rule.activation);
  shape.plain = is_plain(c.rule) && !c.biases;
  RandomLayer layer = random_layer(format, shape, 11);
  layer.rule = c.rule;
  if (c.biases) add_biases(layer, 12);
  if (!c.map) return layer;
  for (std::int64_t id = 0; id < 2 * shape.experts; ++id) {
    layer.expert_map.push_back(id % 2 == 0 ? static_cast<std::int32_t>(id / 2) : -1);
  }
  layer.expert_map[2] = static_cast<std::int32_t>(shape.experts);  // no expert of that number
  for (std::size_t i = 0; i < layer.ids.size(); ++i) {
    layer.ids[i] = 2 * layer.ids[i] + (i % 5 == 0 ? 1 : 0);
    if (i % 7 == 3) layer.ids[i] = i % 2 == 0 ? -1 : static_cast<std::int32_t>(2 * shape.experts);
  }
  return layer;
}

}  // namespace fewbit::cuda
