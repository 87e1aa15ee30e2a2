// SPDX-License-Identifier: Apache-2.0
// The streaming MoE kernel against exact arithmetic. Needs a GPU; skipped where there is none.
#include <gtest/gtest.h>

#include <type_traits>

#include "backends/cuda_moe/grouped_plan.hpp"
#include "device/device_layer.hpp"
#include "device/random_layer.hpp"
#include "layout/pack.hpp"

namespace fewbit::cuda {
namespace {

class MoeF4Test : public testing::Test {
 protected:
  void SetUp() override {
    const Result<int> devices = device::count();
    if (!devices) GTEST_SKIP() << devices.error().message();
    if (*devices == 0) GTEST_SKIP() << "no CUDA device";
    Result<DeviceInfo> found = device::info(0);
    ASSERT_TRUE(found) << found.error().message();
    if (found->compute_capability < 90) {
      GTEST_SKIP() << found->name << " has compute capability " << found->compute_capability
                   << ", the kernel needs 90";
    }
    card_ = card_of(*found);
  }

  StreamCard card_;
};

#define ASSERT_OK(result) ASSERT_TRUE(result) << (result).error().message()

struct Outcome {
  std::vector<std::uint16_t> out;
  bool counters_zero = false;
};

Result<Outcome> run(const RandomLayer& layer, const StreamPlan& plan, int repeats = 1) {
  FEWBIT_TRY(device::Stream stream, device::Stream::create());
  FEWBIT_TRY(
      const DeviceWeights weights,
      prepare_weights(layer.format, layer.shape,
                      {layer.codes, layer.scales, &layer.globals, false, layer.biases}, stream));
  FEWBIT_TRY(const DeviceCall call,
             make_call(plan, {&layer.x, &layer.ids, &layer.weights, layer.rule, &layer.expert_map},
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

void expect_exact(const RandomLayer& layer, const Outcome& outcome, std::int64_t every) {
  const std::int64_t hidden = layer.shape.hidden_size;
  EXPECT_TRUE(outcome.counters_zero);
  double worst = 0;
  double difference = 0;
  double size = 0;
  for (std::int64_t t = 0; t < layer.shape.tokens; t += every) {
    const ExactRow row = exact_row(layer, t);
    for (std::int64_t n = 0; n < hidden; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const double y = bf16_to_f32(outcome.out[static_cast<std::size_t>(t * hidden + n)]);
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
Result<Outcome> run_grouped(const RandomLayer& layer, const StreamCard& card, int repeats = 1,
                            int item_rows = 0) {
  FEWBIT_TRY(const GroupedPlan plan, plan_grouped(layer.shape, card, item_rows));
  FEWBIT_TRY(device::Stream stream, device::Stream::create());
  FEWBIT_TRY(
      const DeviceWeights weights,
      prepare_weights(layer.format, layer.shape,
                      {layer.codes, layer.scales, &layer.globals, false, layer.biases}, stream));
  StreamPlan sizes;  // of the buffers that a call has in any case
  sizes.tokens = plan.tokens;
  sizes.fc1.depth = plan.hidden;
  FEWBIT_TRY(const DeviceCall call,
             make_call(sizes, {&layer.x, &layer.ids, &layer.weights, layer.rule, &layer.expert_map},
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

struct Case {
  F4Format format;
  StreamShape shape;
  StreamChoice choice;
  std::int64_t every = 1;
};

void check(const Case& c, StreamCard card) {
  const RandomLayer layer =
      random_layer(c.format, c.shape, 1 + static_cast<std::uint64_t>(c.shape.tokens));
  const Result<StreamPlan> plan = plan_stream(c.format, c.shape, card, c.choice);
  ASSERT_OK(plan);
  SCOPED_TRACE(testing::Message() << "format " << static_cast<int>(c.format) << " tokens "
                                  << c.shape.tokens << " hidden " << c.shape.hidden_size
                                  << " inner " << c.shape.intermediate_size << " split "
                                  << plan->fc1.split << "," << plan->fc2.split << " tiles "
                                  << plan->token_tiles);
  const Result<Outcome> outcome = run(layer, *plan, 3);
  ASSERT_OK(outcome);
  expect_exact(layer, *outcome, c.every);
}

TEST_F(MoeF4Test, SmallAndOddShapes) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    for (const std::int64_t tokens : {1, 2, 3, 7, 8, 9, 16, 17, 31, 33, 64, 129}) {
      for (const StreamShape& s :
           {StreamShape{tokens, 2, 4, 64, 32}, StreamShape{tokens, 3, 8, 160, 96},
            StreamShape{tokens, 1, 1, 288, 352}, StreamShape{tokens, 2, 2, 256, 192}}) {
        check({format, s, {}}, card_);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MoeF4Test, SizesThatAreNoMultipleOf32) {
  for (const StreamShape& s : {StreamShape{5, 2, 3, 48, 16}, StreamShape{12, 2, 4, 80, 112}}) {
    check({F4Format::e4m3_k16, s, {}}, card_);
  }
}

// Small enough for compute-sanitizer.
TEST_F(MoeF4Test, FewTokens) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    check({format, {3, 2, 4, 64, 32}, {}}, card_);
    check({format, {20, 3, 6, 160, 96}, {2, 1, 2}}, card_);
  }
}

// Recorded once, replayed with other inputs in the same memory.
TEST_F(MoeF4Test, AReplayedGraphGivesWhatACallGives) {
  const RandomLayer layer = random_layer(F4Format::e4m3_k16, {6, 2, 8, 256, 128}, 3);
  RandomLayer other = random_layer(F4Format::e4m3_k16, {6, 2, 8, 256, 128}, 4);
  for (int m = 0; m < 3; ++m) {
    other.codes[m] = layer.codes[m];
    other.scales[m] = layer.scales[m];
  }
  other.globals = layer.globals;
  const Result<StreamPlan> plan = plan_stream(layer.format, layer.shape, card_);
  ASSERT_OK(plan);
  Result<device::Stream> stream = device::Stream::create();
  ASSERT_OK(stream);
  const Result<DeviceWeights> weights = prepare_weights(
      layer.format, layer.shape, {layer.codes, layer.scales, &layer.globals, false}, *stream);
  ASSERT_OK(weights);
  const Result<DeviceCall> call = make_call(*plan, {&layer.x, &layer.ids, &layer.weights}, *stream);
  ASSERT_OK(call);
  const Result<device::Graph> graph = device::Graph::record(*stream, [&] {
    return device::check(launch_moe_f4(layer.format, *plan, call->args(*weights), stream->handle()),
                         "moe_f4");
  });
  ASSERT_OK(graph);
  for (const RandomLayer* inputs : {&layer, static_cast<const RandomLayer*>(&other), &layer}) {
    ASSERT_OK(device::copy_to_device(call->x.data(), bytes_of(inputs->x), *stream));
    ASSERT_OK(device::copy_to_device(call->ids.data(), bytes_of(inputs->ids), *stream));
    ASSERT_OK(device::copy_to_device(call->weights.data(), bytes_of(inputs->weights), *stream));
    ASSERT_OK(graph->launch(*stream));
    Outcome replayed;
    replayed.out.resize(call->out.size() / 2);
    ASSERT_OK(device::copy_to_host(std::as_writable_bytes(std::span(replayed.out)),
                                   call->out.data(), *stream));
    ASSERT_OK(stream->synchronize());
    const Result<Outcome> called = run(*inputs, *plan);
    ASSERT_OK(called);
    EXPECT_EQ(replayed.out, called->out);
  }
}

// Two calls of one layer at once, each with its own scratch.
TEST_F(MoeF4Test, CallsOnTwoStreamsDoNotDisturbEachOther) {
  const RandomLayer layer = random_layer(F4Format::e8m0_k32, {24, 4, 16, 512, 256}, 8);
  const Result<StreamPlan> plan = plan_stream(layer.format, layer.shape, card_);
  ASSERT_OK(plan);
  const Result<Outcome> alone = run(layer, *plan);
  ASSERT_OK(alone);
  std::vector<device::Stream> streams;
  for (int i = 0; i < 2; ++i) {
    Result<device::Stream> stream = device::Stream::create();
    ASSERT_OK(stream);
    streams.push_back(std::move(*stream));
  }
  const Result<DeviceWeights> weights = prepare_weights(
      layer.format, layer.shape, {layer.codes, layer.scales, &layer.globals, false}, streams[0]);
  ASSERT_OK(weights);
  std::vector<DeviceCall> calls;
  for (const device::Stream& stream : streams) {
    Result<DeviceCall> call = make_call(*plan, {&layer.x, &layer.ids, &layer.weights}, stream);
    ASSERT_OK(call);
    calls.push_back(std::move(*call));
  }
  for (int repeat = 0; repeat < 100; ++repeat) {
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_OK(device::check(
          launch_moe_f4(layer.format, *plan, calls[i].args(*weights), streams[i].handle()),
          "moe_f4"));
    }
  }
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<std::uint16_t> out(alone->out.size());
    ASSERT_OK(device::copy_to_host(std::as_writable_bytes(std::span(out)), calls[i].out.data(),
                                   streams[i]));
    ASSERT_OK(streams[i].synchronize());
    EXPECT_EQ(out, alone->out);
  }
}

TEST_F(MoeF4Test, EveryWayToSplitTheWork) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    for (const int split : {1, 2, 4, 8, 16}) {
      for (const int tiles : {1, 2, 4}) {
        check({format, {40, 4, 6, 512, 384}, {split, 16 / split, tiles}}, card_);
        if (HasFatalFailure()) return;
      }
    }
  }
}

struct RuleCase {
  const char* name;
  MoeF4Rule rule;
  bool biases;
  bool map;
};
std::vector<RuleCase> rule_cases() {
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
RandomLayer layer_of(F4Format format, StreamShape shape, const RuleCase& c) {
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

TEST_F(MoeF4Test, ActivationsBiasesMapsAndRouterWeightsOnEitherSide) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    for (const RuleCase& c : rule_cases()) {
      for (const std::int64_t tokens : {3, 40}) {
        SCOPED_TRACE(testing::Message() << c.name << ", format " << static_cast<int>(format));
        const RandomLayer layer = layer_of(format, {tokens, 3, 8, 160, 96}, c);
        const Result<StreamPlan> plan = plan_stream(format, layer.shape, card_);
        ASSERT_OK(plan);
        const Result<Outcome> outcome = run(layer, *plan, 3);
        ASSERT_OK(outcome);
        expect_exact(layer, *outcome, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

class GroupedTest : public MoeF4Test {
 protected:
  void SetUp() override {
    MoeF4Test::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    const Result<DeviceInfo> found = device::info(0);
    ASSERT_OK(found);
    if (found->compute_capability != 90) {
      GTEST_SKIP() << "warpgroup products need compute capability 90";
    }
  }
  void check(F4Format format, const StreamShape& shape, std::int64_t every = 1, int item_rows = 0) {
    const RandomLayer layer =
        random_layer(format, shape, 1 + static_cast<std::uint64_t>(shape.tokens));
    SCOPED_TRACE(testing::Message()
                 << "format " << static_cast<int>(format) << " tokens " << shape.tokens
                 << " hidden " << shape.hidden_size << " inner " << shape.intermediate_size);
    const Result<Outcome> outcome = run_grouped(layer, card_, 3, item_rows);
    ASSERT_OK(outcome);
    expect_exact(layer, *outcome, every);
  }
};

// Small enough for compute-sanitizer.
TEST_F(GroupedTest, FewTokens) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    check(format, {5, 2, 4, 64, 64});
    check(format, {70, 2, 2, 128, 192}, 1, 32);
    check(format, {70, 2, 2, 128, 192}, 1, 48);
    check(format, {70, 2, 2, 128, 192}, 1, 64);
    check(format, {70, 2, 2, 128, 192}, 1, 128);
  }
}

TEST_F(GroupedTest, SmallAndOddShapes) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    for (const std::int64_t tokens : {1, 7, 8, 9, 16, 17, 33, 49, 65, 97, 128, 129, 300}) {
      for (const StreamShape& s :
           {StreamShape{tokens, 1, 1, 64, 64}, StreamShape{tokens, 3, 5, 192, 320},
            StreamShape{tokens, 2, 2, 640, 448}}) {
        for (const int item_rows : {32, 48, 64, 128}) {
          check(format, s, (tokens + 15) / 16, item_rows);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(GroupedTest, ActivationsBiasesMapsAndRouterWeightsOnEitherSide) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    for (const RuleCase& c : rule_cases()) {
      if (c.rule.activation != F4Activation::swiglu) continue;
      SCOPED_TRACE(testing::Message() << c.name << ", format " << static_cast<int>(format));
      const RandomLayer layer = layer_of(format, {90, 3, 8, 192, 128}, c);
      const Result<Outcome> outcome = run_grouped(layer, card_, 3);
      ASSERT_OK(outcome);
      expect_exact(layer, *outcome, 1);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(GroupedTest, RoutesThatAreSkewedRepeatedOrOutside) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    RandomLayer layer = random_layer(format, {400, 4, 16, 256, 128}, 5);
    for (std::size_t i = 0; i < layer.ids.size(); ++i) {
      if (i % 4 == 0) layer.ids[i] = 3;
      if (i % 4 == 1 && i % 3 == 0) layer.ids[i] = 3;
      if (i % 4 == 2) layer.ids[i] = i % 8 == 2 ? -1 : 16 + static_cast<int>(i);
    }
    for (std::size_t j = 0; j < 4; ++j) layer.ids[4 * 11 + j] = -1;
    const Result<Outcome> outcome = run_grouped(layer, card_, 1000);
    ASSERT_OK(outcome);
    expect_exact(layer, *outcome, 7);
  }
}

TEST_F(GroupedTest, LayersOfPublishedModels) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    check(format, {300, 8, 128, 2048, 768}, 100);
    check(format, {4096, 8, 128, 2048, 768}, 2000);
    check(format, {150, 4, 4, 2880, 2880}, 50);
    check(format, {200, 8, 16, 4096, 1408}, 60);
    check(format, {64, 2, 4, 7168, 2048}, 30);
  }
}

TEST_F(MoeF4Test, RoutesThatAreSkewedRepeatedOrOutside) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    RandomLayer layer = random_layer(format, {70, 4, 16, 256, 128}, 5);
    for (std::size_t i = 0; i < layer.ids.size(); ++i) {
      if (i % 4 == 0) layer.ids[i] = 3;                // one expert has all tokens
      if (i % 4 == 1 && i % 3 == 0) layer.ids[i] = 3;  // twice for some
      if (i % 4 == 2) layer.ids[i] = i % 8 == 2 ? -1 : 16 + static_cast<int>(i);
    }
    for (std::size_t j = 0; j < 4; ++j)
      layer.ids[4 * 11 + j] = -1;  // a token with no expert at all
    const Result<StreamPlan> plan = plan_stream(format, layer.shape, card_);
    ASSERT_OK(plan);
    const Result<Outcome> outcome = run(layer, *plan, 1000);
    ASSERT_OK(outcome);
    expect_exact(layer, *outcome, 1);
  }
}

// Each of the two routes counts, with its own weight.
TEST_F(MoeF4Test, OneTokenMayNameAnExpertTwice) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    RandomLayer layer = random_layer(format, {1, 2, 4, 256, 128}, 6);
    layer.ids = {2, 2};
    layer.weights = {0.25F, 0.5F};
    const Result<StreamPlan> plan = plan_stream(format, layer.shape, card_);
    ASSERT_OK(plan);
    const Result<Outcome> outcome = run(layer, *plan, 3);
    ASSERT_OK(outcome);
    expect_exact(layer, *outcome, 1);
  }
}

// Blocks that wait for each other are launched together or not at all.
TEST_F(MoeF4Test, MoreBlocksThanTheCardHoldsAreAnError) {
  const RandomLayer layer = random_layer(F4Format::e4m3_k16, {2, 2, 4, 256, 128}, 7);
  Result<StreamPlan> plan = plan_stream(layer.format, layer.shape, card_);
  ASSERT_OK(plan);
  plan->blocks *= 64;
  const Result<Outcome> outcome = run(layer, *plan);
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message().find("moe_f4"), std::string::npos);
}

TEST_F(MoeF4Test, LayersOfPublishedModels) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    for (const std::int64_t tokens : {1, 4, 16, 64, 256}) {
      check({format, {tokens, 8, 128, 2048, 768}, {}, (tokens + 1) / 2}, card_);
      if (HasFatalFailure()) return;
    }
    check({format, {7, 4, 8, 2880, 2880}, {}, 3}, card_);
    check({format, {9, 2, 4, 7168, 2048}, {}, 5}, card_);
  }
}

TEST_F(MoeF4Test, DevicePackingGivesTheBytesOfTheClosedForm) {
  for (const F4Format format : {F4Format::e4m3_k16, F4Format::e8m0_k32}) {
    const RandomLayer layer = random_layer(format, {1, 1, 3, 96, 32}, 9);
    Result<device::Stream> stream = device::Stream::create();
    ASSERT_OK(stream);
    const Result<DeviceWeights> weights = prepare_weights(
        format, layer.shape, {layer.codes, layer.scales, &layer.globals, false}, *stream);
    ASSERT_OK(weights);
    std::vector<std::uint8_t> packed(weights->w13.size());
    ASSERT_OK(device::copy_to_host(std::as_writable_bytes(std::span(packed)), weights->w13.data(),
                                   *stream));
    ASSERT_OK(stream->synchronize());
    std::vector<std::uint8_t> expected(packed.size());
    const auto fill = [&]<int group>(std::integral_constant<int, group> /*of the scales*/) {
      using Cells = CudaF4Cells<group>;
      const Dims d = {.n = 64, .k = 96};
      const std::int64_t size = Cells::bytes({.n = 32, .k = 96});
      for (std::int64_t e = 0; e < 3; ++e) {
        const auto scale = [&](std::int64_t n, std::int64_t g) {
          const std::int64_t row = e * 32 + n % 32;
          return layer.scales[n / 32][static_cast<std::size_t>(row * (96 / group) + g)];
        };
        const auto code = [&](std::int64_t n, std::int64_t k) {
          const std::int64_t row = e * 32 + n % 32;
          const std::uint8_t byte = layer.codes[n / 32][static_cast<std::size_t>(row * 48 + k / 2)];
          const auto stored = static_cast<std::uint8_t>(k % 2 == 0 ? byte & 15 : byte >> 4);
          return Cells::stored_code(stored, scale(n, k / group));
        };
        const auto to =
            std::as_writable_bytes(std::span(expected))
                .subspan(static_cast<std::size_t>(e * size), static_cast<std::size_t>(size));
        const auto plane = [&]<int bit>(std::integral_constant<int, bit> /*of the codes*/) {
          pack<CudaF4CodePlane<group, bit>>(
              d, [&](std::int64_t n, std::int64_t k) { return code(n, k) >> bit & 1; }, to);
        };
        plane(std::integral_constant<int, 0>{});
        plane(std::integral_constant<int, 1>{});
        plane(std::integral_constant<int, 2>{});
        plane(std::integral_constant<int, 3>{});
        pack<CudaF4CellScales<group>>(
            {.n = 64, .k = 96 / group},
            [&](std::int64_t n, std::int64_t g) { return Cells::stored_scale(scale(n, g)); }, to);
      }
    };
    if (format == F4Format::e4m3_k16) {
      fill(std::integral_constant<int, 16>{});
    } else {
      fill(std::integral_constant<int, 32>{});
    }
    EXPECT_EQ(packed, expected);
  }
}

}  // namespace
}  // namespace fewbit::cuda
