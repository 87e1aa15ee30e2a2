// SPDX-License-Identifier: Apache-2.0
// The streaming MoE kernel against exact arithmetic. Needs a GPU; skipped where there is none.
#include <gtest/gtest.h>

#include "device/moe_run.hpp"

namespace fewbit::cuda {
namespace {

struct Case {
  CellFormat format;
  StreamShape shape;
  StreamChoice choice;
  std::int64_t every = 1;
};

void check(const Case& c, StreamCard card) {
  const RandomLayer layer =
      random_layer(c.format, c.shape, 1 + static_cast<std::uint64_t>(c.shape.tokens));
  const Result<StreamPlan> plan = plan_stream(c.format, c.shape, card, c.choice);
  ASSERT_OK(plan);
  SCOPED_TRACE(testing::Message() << "format " << name_of(c.format) << " tokens " << c.shape.tokens
                                  << " hidden " << c.shape.hidden_size << " inner "
                                  << c.shape.intermediate_size << " split " << plan->fc1.split
                                  << "," << plan->fc2.split << " tiles " << plan->token_tiles);
  const Result<Outcome> outcome = run(layer, *plan, 3);
  ASSERT_OK(outcome);
  expect_exact(layer, *outcome, c.every);
}

TEST_F(MoeF4Test, SmallAndOddShapes) {
  for (const CellFormat& format : all_formats()) {
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
    for (const CellFormat& format : all_formats()) {
      if (format.kind == CellKind::nvfp4 || has_int_cells(format.kind)) {
        check({format, s, {}}, card_);
      }
    }
  }
}

// Of integers: whole rows, groups of several cells, and groups that the last k don't fill.
TEST_F(MoeF4Test, GroupsOfEverySize) {
  for (const std::int64_t group : {0, 32, 64, 96, 128, 256}) {
    for (const CellFormat& all : all_formats()) {
      if (!has_int_cells(all.kind)) continue;
      CellFormat format = all;
      format.ints.scale_cells = format.kind == CellKind::nf3 ? 1 : group % 128 == 0 ? 4 : 1;
      if (format.kind == CellKind::ternary && group == 64) format.ints.scale_cells = 2;
      for (const std::int64_t tokens : {3, 20}) {
        const RandomLayer layer = random_layer(format, {tokens, 2, 4, 400, 272},
                                               static_cast<std::uint64_t>(group), group);
        const Result<StreamPlan> plan = plan_stream(format, layer.shape, card_);
        ASSERT_OK(plan);
        const Result<Outcome> outcome = run(layer, *plan, 2);
        ASSERT_OK(outcome);
        SCOPED_TRACE(testing::Message() << name_of(format) << " group " << group);
        expect_exact(layer, *outcome, 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Small enough for compute-sanitizer.
TEST_F(MoeF4Test, FewTokens) {
  for (const CellFormat& format : all_formats()) {
    check({format, {3, 2, 4, 64, 32}, {}}, card_);
    check({format, {20, 3, 6, 160, 96}, {2, 1, 2}}, card_);
  }
}

// Recorded once, replayed with other inputs in the same memory.
TEST_F(MoeF4Test, AReplayedGraphGivesWhatACallGives) {
  const RandomLayer layer = random_layer(nvfp4_cells, {6, 2, 8, 256, 128}, 3);
  RandomLayer other = random_layer(nvfp4_cells, {6, 2, 8, 256, 128}, 4);
  for (int m = 0; m < 3; ++m) {
    other.codes[m] = layer.codes[m];
    other.scales[m] = layer.scales[m];
  }
  other.globals = layer.globals;
  const Result<StreamPlan> plan = plan_stream(layer.format, layer.shape, card_);
  ASSERT_OK(plan);
  Result<device::Stream> stream = device::Stream::create();
  ASSERT_OK(stream);
  const Result<DeviceWeights> weights =
      prepare_weights(layer.format, layer.shape, host_experts(layer), *stream);
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
  const RandomLayer layer = random_layer(mxfp4_cells, {24, 4, 16, 512, 256}, 8);
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
  const Result<DeviceWeights> weights =
      prepare_weights(layer.format, layer.shape, host_experts(layer), streams[0]);
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
  for (const CellFormat& format : all_formats()) {
    for (const int split : {1, 2, 4, 8, 16}) {
      for (const int tiles : {1, 2, 4}) {
        check({format, {40, 4, 6, 512, 384}, {split, 16 / split, tiles}}, card_);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MoeF4Test, ActivationsBiasesMapsAndRouterWeightsOnEitherSide) {
  for (const CellFormat& format : all_formats()) {
    for (const RuleCase& c : rule_cases()) {
      for (const std::int64_t tokens : {3, 40}) {
        SCOPED_TRACE(testing::Message() << c.name << ", format " << name_of(format));
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

TEST_F(MoeF4Test, RoutesThatAreSkewedRepeatedOrOutside) {
  for (const CellFormat& format : all_formats()) {
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
  for (const CellFormat& format : all_formats()) {
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
  const RandomLayer layer = random_layer(nvfp4_cells, {2, 2, 4, 256, 128}, 7);
  Result<StreamPlan> plan = plan_stream(layer.format, layer.shape, card_);
  ASSERT_OK(plan);
  plan->blocks *= 64;
  const Result<Outcome> outcome = run(layer, *plan);
  ASSERT_FALSE(outcome);
  EXPECT_NE(outcome.error().message().find("moe_f4"), std::string::npos);
}

TEST_F(MoeF4Test, LayersOfPublishedModels) {
  for (const CellFormat format :
       {nvfp4_cells, mxfp4_cells, all_formats()[2], all_formats()[3], all_formats()[6]}) {
    for (const std::int64_t tokens : {1, 4, 16, 64, 256}) {
      check({format, {tokens, 8, 128, 2048, 768}, {}, (tokens + 1) / 2}, card_);
      if (HasFatalFailure()) return;
    }
    check({format, {7, 4, 8, 2880, 2880}, {}, 3}, card_);
    check({format, {9, 2, 4, 7168, 2048}, {}, 5}, card_);
  }
}

}  // namespace
}  // namespace fewbit::cuda
