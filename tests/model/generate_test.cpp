// SPDX-License-Identifier: Apache-2.0
// Perplexity and generation on top of the forward pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model_fixture.hpp"

namespace fewbit {
namespace {

using test::TinyConfig;
using test::TinyModel;
using testing::HasSubstr;

class GenerateTest : public test::ModelTest {};
class EvaluateTest : public test::ModelTest {};

double loss(const std::vector<double>& logits, std::int32_t target) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  return std::log(sum) - logits[static_cast<std::size_t>(target)];
}

// 34 ids in windows of 8: four windows, the last target is id 32, one id is left over.
TEST_F(EvaluateTest, EachWindowScoresTheTokenAfterEachOfItsOwn) {
  const TinyModel tiny{TinyConfig{}};
  const Model model = load(tiny);
  const auto ids = some_ids(tiny.config(), 34);
  double expected = 0;
  for (std::size_t w = 0; w < 4; ++w) {
    const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(w * 8);
    const auto logits = tiny.compute({begin, begin + 8}).logits;
    for (std::size_t i = 0; i < 8; ++i) expected += loss(logits[i], ids[w * 8 + i + 1]) / 32;
  }
  const auto evaluation = evaluate(model, ids, 8, {});
  ASSERT_TRUE(evaluation) << evaluation.error().message();
  EXPECT_EQ(evaluation->windows, 4);
  EXPECT_EQ(evaluation->tokens_scored, 32);
  EXPECT_NEAR(evaluation->mean_nll, expected, 1e-5);
  EXPECT_DOUBLE_EQ(evaluation->perplexity, std::exp(evaluation->mean_nll));
}

// A window counts only with the token that follows it.
TEST_F(EvaluateTest, AWindowWithoutAFollowingTokenIsDropped) {
  const TinyModel tiny{TinyConfig{}};
  const Model model = load(tiny);
  EXPECT_EQ(evaluate(model, some_ids(tiny.config(), 16), 8, {})->windows, 1);
  EXPECT_EQ(evaluate(model, some_ids(tiny.config(), 17), 8, {})->windows, 2);
  const auto none = evaluate(model, some_ids(tiny.config(), 8), 8, {});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message(),
              HasSubstr("a window of 8 tokens needs a text of at least 9, found 8"));
  EXPECT_FALSE(evaluate(model, some_ids(tiny.config(), 8), 0, {}));
}

TEST_F(EvaluateTest, ProgressCountsTokensAndCanStop) {
  const TinyModel tiny{TinyConfig{}};
  const Model model = load(tiny);
  std::vector<std::uint64_t> done;
  const auto ids = some_ids(tiny.config(), 25);
  ASSERT_TRUE(evaluate(model, ids, 8, [&](std::uint64_t at, std::uint64_t total) {
    EXPECT_EQ(total, 24U);
    done.push_back(at);
    return true;
  }));
  EXPECT_THAT(done, testing::ElementsAre(8, 16, 24));
  const auto stopped = evaluate(model, ids, 8, [](std::uint64_t, std::uint64_t) { return false; });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::cancelled);
}

std::vector<std::int32_t> greedy_by_hand(const TinyModel& tiny, std::vector<std::int32_t> ids,
                                         int count) {
  for (int i = 0; i < count; ++i) {
    const auto logits = tiny.compute(ids).logits.back();
    ids.push_back(
        static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return ids;
}

TEST_F(GenerateTest, GreedyTakesTheLargestLogitEachTime) {
  const TinyModel tiny{TinyConfig{}};
  const Model model = load(tiny);
  const std::vector<std::int32_t> prompt = {3, 17, 5};
  GenerateOptions options;
  options.max_new_tokens = 20;
  std::vector<std::int32_t> seen = prompt;
  options.on_token = [&](std::int32_t id) {
    seen.push_back(id);
    return true;
  };
  const auto generation = generate(model, prompt, options);
  ASSERT_TRUE(generation) << generation.error().message();
  EXPECT_EQ(generation->ids, greedy_by_hand(tiny, prompt, 20));
  EXPECT_EQ(generation->ids, seen);
  EXPECT_EQ(generation->prompt_tokens, 3);
  EXPECT_FALSE(generation->stopped_by_eos);
}

TEST_F(GenerateTest, StopsAtTheEndOfSequenceOrWhenAsked) {
  TinyModel tiny{TinyConfig{}};
  const std::vector<std::int32_t> prompt = {3, 17, 5};
  const auto expected = greedy_by_hand(tiny, prompt, 8);
  GenerateOptions options;
  options.max_new_tokens = 8;
  int calls = 0;
  options.on_token = [&](std::int32_t) { return ++calls < 3; };
  EXPECT_EQ(generate(load(tiny), prompt, options)->ids.size(), 6U);
  // The last id that the model would write is made its end of sequence.
  const std::int32_t eos = expected.back();
  const auto first = std::find(expected.begin() + 3, expected.end(), eos);
  tiny.config_json().set("eos_token_id", Json(Json::Array{Json(0), Json(eos)}));
  options.on_token = {};
  options.max_new_tokens = 50;
  const auto generation = generate(load(tiny), prompt, options);
  ASSERT_TRUE(generation) << generation.error().message();
  const auto zero = std::find(expected.begin() + 3, expected.end(), 0);
  EXPECT_EQ(generation->ids,
            std::vector<std::int32_t>(expected.begin(), std::min(first, zero) + 1));
  EXPECT_TRUE(generation->stopped_by_eos);
}

// The last token that fits the context is written without a position of its own.
TEST_F(GenerateTest, StopsWhenTheContextIsFull) {
  const TinyModel tiny(TinyConfig{.max_positions = 12});
  const Model model = load(tiny);
  GenerateOptions options;
  options.max_new_tokens = 1000;
  EXPECT_EQ(generate(model, some_ids(tiny.config(), 9), options)->ids.size(), 13U);
  EXPECT_EQ(generate(model, some_ids(tiny.config(), 12), options)->ids.size(), 13U);
  options.max_new_tokens = 0;
  EXPECT_EQ(generate(model, some_ids(tiny.config(), 12), options)->ids.size(), 12U);
}

TEST_F(GenerateTest, BadRequestsNameBothNumbers) {
  const TinyModel tiny(TinyConfig{.max_positions = 12});
  const Model model = load(tiny);
  const auto error = [&](std::size_t prompt, GenerateOptions options) {
    const auto made = generate(model, some_ids(tiny.config(), prompt), options);
    return made ? std::string("none") : made.error().message();
  };
  EXPECT_THAT(error(13, {}), HasSubstr("the prompt has 13 tokens, the context of the model 12"));
  EXPECT_THAT(error(0, {}), HasSubstr("prompt is empty"));
  EXPECT_THAT(error(3, {.sampling = {}, .max_new_tokens = -1, .on_token = {}}),
              HasSubstr("max_new_tokens is -1"));
  EXPECT_THAT(error(3, {.sampling = {.temperature = -1.0F}, .max_new_tokens = 1, .on_token = {}}),
              HasSubstr("temperature is -1"));
}

TEST_F(GenerateTest, ASeedFixesTheText) {
  const TinyModel tiny{TinyConfig{}};
  const Model model = load(tiny);
  const auto text = [&](std::uint64_t seed) {
    GenerateOptions options;
    options.sampling = {.temperature = 1.5F, .seed = seed};
    options.max_new_tokens = 30;
    return generate(model, some_ids(tiny.config(), 4), options)->ids;
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
}

}  // namespace
}  // namespace fewbit
