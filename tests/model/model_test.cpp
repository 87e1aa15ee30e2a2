// SPDX-License-Identifier: Apache-2.0
// The forward pass of Qwen3-MoE models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_fixture.hpp"

namespace fewbit {
namespace {

using test::ModelTest;
using test::relative_error;
using test::TinyConfig;
using test::TinyModel;

// Sizes that differ in what a kernel may trip over: groups of 1, 2, 3 and 5 heads, head widths that
// fill no vector, one expert a token and all of them.
const TinyConfig configs[] = {
    {},
    {.tied = true, .renormalize = false},
    {.heads = 6, .kv_heads = 2, .head_dim = 10, .experts = 3, .top_k = 3, .dense_layer = 0},
    {.layers = 3, .heads = 2, .kv_heads = 2, .head_dim = 40, .top_k = 1, .dense_layer = 1},
    {.hidden = 48, .heads = 5, .kv_heads = 1, .head_dim = 34, .expert_width = 48, .tied = true},
};

TEST_F(ModelTest, HiddenStatesAndLogitsAgreeWithDouble) {
  for (const TinyConfig& config : configs) {
    const TinyModel tiny(config);
    const Model model = load(tiny);
    // More than two blocks of keys.
    const auto ids = some_ids(config, 150);
    Sequence sequence = *model.new_sequence(150);
    const auto trace = model.forward_traced(sequence, ids);
    ASSERT_TRUE(trace) << trace.error().message();
    const TinyModel::Outputs expected = tiny.compute(ids);
    ASSERT_EQ(trace->hidden_states.size(), expected.hidden_states.size());
    for (std::size_t i = 0; i < expected.hidden_states.size(); ++i) {
      EXPECT_LE(relative_error(trace->hidden_states[i], expected.hidden_states[i]), 2e-6) << i;
    }
    EXPECT_LE(relative_error(trace->logits, expected.logits), 2e-6);
  }
}

// bf16 has 8 bits: each of the some twenty roundings on the way adds at most 2^-9 of a value's
// size.
TEST_F(ModelTest, Bf16ActivationsStayNearTheExactResult) {
  const TinyModel tiny(TinyConfig{}, DType::bf16);
  ModelOptions options;
  options.activation_dtype = DType::bf16;
  const Model model = load(tiny, options);
  const auto ids = some_ids(tiny.config(), 100);
  Sequence sequence = *model.new_sequence(100);
  const auto logits = model.forward(sequence, ids, Model::Logits::all);
  ASSERT_TRUE(logits) << logits.error().message();
  const double error = relative_error(*logits, tiny.compute(ids).logits);
  EXPECT_LE(error, 4 * std::sqrt(20.0) * 0x1p-9);
  EXPECT_GT(error, 1e-4) << "activations were not bf16";
}

TEST_F(ModelTest, TokensInPiecesGiveTheSameLogits) {
  const TinyModel tiny{TinyConfig{}};
  const auto ids = some_ids(tiny.config(), 140);
  const auto expected = tiny.compute(ids).logits;
  const Model model = load(tiny);
  for (const std::size_t piece : {1U, 7U, 64U, 65U}) {
    Sequence sequence = *model.new_sequence(140);
    std::vector<float> all;
    for (std::size_t at = 0; at < ids.size(); at += piece) {
      const auto part = std::span(ids).subspan(at, std::min(piece, ids.size() - at));
      const auto logits = model.forward(sequence, part, Model::Logits::all);
      ASSERT_TRUE(logits) << logits.error().message();
      all.insert(all.end(), logits->begin(), logits->end());
      EXPECT_EQ(sequence.length(), static_cast<std::int64_t>(at + part.size()));
    }
    EXPECT_LE(relative_error(all, expected), 2e-6) << "pieces of " << piece;
  }
}

TEST_F(ModelTest, CallsLongerThanMaxTokensAreSplit) {
  const TinyModel tiny{TinyConfig{}};
  const auto ids = some_ids(tiny.config(), 50);
  ModelOptions options = f32_options();
  options.max_tokens = 9;
  const Model model = load(tiny, options);
  const TinyModel::Outputs expected = tiny.compute(ids);
  Sequence sequence = *model.new_sequence(50);
  const auto trace = model.forward_traced(sequence, ids);
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_LE(relative_error(trace->logits, expected.logits), 2e-6);
  EXPECT_LE(relative_error(trace->hidden_states[1], expected.hidden_states[1]), 2e-6);
  sequence.clear();
  const auto last = model.forward(sequence, ids, Model::Logits::last_only);
  ASSERT_TRUE(last) << last.error().message();
  EXPECT_LE(relative_error(*last, {expected.logits.back()}), 2e-6);
}

TEST_F(ModelTest, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    ModelOptions options;
    options.activation_dtype = dtype;
    const TinyModel tiny(TinyConfig{}, DType::bf16);
    const auto ids = some_ids(tiny.config(), 150);
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 5}) {
      const Model model = load(tiny, options, threads);
      Sequence sequence = *model.new_sequence(150);
      results.push_back(*model.forward(sequence, ids, Model::Logits::all));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
  }
}

TEST_F(ModelTest, SequencesAreIndependentAndCanBeReused) {
  const TinyModel tiny{TinyConfig{}};
  const Model model = load(tiny);
  const auto ids = some_ids(tiny.config(), 80);
  const auto others = std::vector<std::int32_t>(ids.rbegin(), ids.rend());
  const auto run = [&](Sequence& sequence, std::span<const std::int32_t> part) {
    return *model.forward(sequence, part, Model::Logits::last_only);
  };
  Sequence alone = *model.new_sequence(80);
  const auto expected = run(alone, ids);
  Sequence a = *model.new_sequence(80);
  Sequence b = *model.new_sequence(100);
  run(a, std::span(ids).first(40));
  run(b, others);
  EXPECT_EQ(run(a, std::span(ids).subspan(40)), expected);
  b.clear();
  EXPECT_EQ(b.length(), 0);
  EXPECT_EQ(run(b, ids), expected);
}

// 16-bit matrices are read in place, so a model of only such owns nothing, and each byte of the
// checkpoint counts once; the rest are the norms.
TEST_F(ModelTest, ReportAddsUpToTheCheckpoint) {
  for (const bool tied : {false, true}) {
    const TinyModel tiny(TinyConfig{.tied = tied}, DType::bf16);
    const Model model = load(tiny);
    const ModelReport& report = model.report();
    EXPECT_EQ(report.moe_selections.size(), 2U);
    EXPECT_EQ(report.moe_problem.where, "model.layers.0.mlp.experts");
    const std::uint64_t norms = 2 * (5 * 32 + 4 * 8);
    EXPECT_EQ(report.owned_bytes + report.mapped_bytes + norms, report.checkpoint_bytes);
  }
}

TEST_F(ModelTest, ProgressReachesTheTotalAndCanStop) {
  const TinyModel tiny{TinyConfig{}};
  ModelOptions options = f32_options();
  std::vector<std::uint64_t> done;
  std::uint64_t total = 0;
  options.progress = [&](std::uint64_t bytes, std::uint64_t of) {
    done.push_back(bytes);
    total = of;
    return true;
  };
  load(tiny, options);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), total);
  options.progress = [](std::uint64_t, std::uint64_t) { return false; };
  const auto stopped = try_load(tiny, options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
}

}  // namespace
}  // namespace fewbit
