// SPDX-License-Identifier: Apache-2.0
// What explain decides is what prepare does: the same backend and shares, or the same refusal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "checkpoint/scratch_folder.hpp"
#include "model/tiny_model.hpp"
#include "paths.hpp"
#include "prepared/deal_layer.hpp"
#include "prepared/prepare_plan.hpp"
#include "select/activation_default.hpp"
#include "select/decide_layer.hpp"
#include "select/layer_problem.hpp"
#include "select/problem_list.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

struct Question {
  std::string device;
  std::string backend;  // empty: chosen
  Parallel parallel;

  std::string text() const {
    return device + " " + backend + " tp " + std::to_string(parallel.tensor) + " ep " +
           std::to_string(parallel.expert);
  }
};

std::vector<Parallel> all_spreads() {
  std::vector<Parallel> spreads;
  for (int tensor = 1; tensor <= 9; ++tensor) {
    for (const int expert : {1, 2}) spreads.push_back({.tensor = tensor, .expert = expert});
  }
  return spreads;
}

// Every backend on a machine that it is for, and what is chosen by itself.
std::vector<std::pair<std::string, std::string>> all_machines() {
  std::vector<std::pair<std::string, std::string>> machines;
  for (const char* device : {"cpu:generic", "cpu:avx2", "cpu:avx512", "cpu:amx", "sm_90"}) {
    machines.emplace_back(device, "");
  }
  for (const Backend* backend : all_backends()) machines.emplace_back("cpu:avx512", backend->name);
  for (const Backend* backend : foreign_backends()) {
    const std::string name = backend->name;
    machines.emplace_back(name.starts_with("xpu") ? "xpu" : "sm_100", name);
    if (!name.starts_with("xpu")) machines.emplace_back("sm_90", name);
  }
  return machines;
}

Engine engine_of(const Question& question) {
  const Backend* forced = find_backend(question.backend);
  return forced == nullptr ? Engine::fewbit : forced->engine;
}

DeviceInfo device_of(const Question& question) {
  DeviceInfo device = *describe_device(question.device);
  device.built_for = {"generic", "neon", "avx2", "avx512", "amx", "sm_90a"};
  return device;
}

// As explain asks: every layer, and the first thing that stands against preparing the model.
struct Said {
  std::map<int, LayerDecision> layers;
  std::string refused;
};

Said say(const Checkpoint& checkpoint, const Identified& identified, const Question& question) {
  Said said;
  const Engine engine = engine_of(question);
  const auto config = layer_config(checkpoint, identified);
  if (!config) return {{}, config.error().what};
  const DType dtype = default_activation_dtype(engine, config->dtype);
  for (const auto& [layer, whole] : moe_layer_problems(checkpoint, identified, *config, dtype)) {
    if (!whole) return {{}, whole.error().what};
    const auto decision =
        decide_layer_of(checkpoint, identified, *whole, question.parallel, device_of(question),
                        {.backend = question.backend, .engine = engine});
    if (!decision) return {{}, decision.error().what};
    if (!decision->of_model.empty()) return {{}, decision->of_model};
    if (decision->refused) return {{}, decision->refused->what};
    if (!decision->why_unprepared().empty()) return {{}, decision->why_unprepared()};
    said.layers.emplace(layer, *decision);
  }
  return said;
}

void expect_same(const Checkpoint& checkpoint, const Identified& identified,
                 const Question& question) {
  SCOPED_TRACE(checkpoint.directory().string() + " " + question.text());
  const Said said = say(checkpoint, identified, question);
  const int tensor_rank = (question.parallel.tensor - 1) * (question.parallel.expert % 2);
  PrepareOptions options;
  options.backend = question.backend;
  options.device = device_of(question);
  options.split = {.tensor_ranks = question.parallel.tensor,
                   .expert_ranks = question.parallel.expert,
                   .rank = tensor_rank};
  const auto plan = plan_prepare(checkpoint, identified, options);
  ASSERT_EQ(plan.has_value(), said.refused.empty())
      << (plan ? said.refused : plan.error().message());
  if (!plan) {
    EXPECT_THAT(plan.error().what, testing::HasSubstr(said.refused));
    return;
  }
  ASSERT_EQ(plan->layers.size(), said.layers.size());
  for (const PlannedLayer& layer : plan->layers) {
    const LayerDecision& decision = said.layers.at(layer.info.layer);
    EXPECT_EQ(layer.info.backend, decision.selection.chosen);
    const auto rank = static_cast<std::size_t>(tensor_rank);
    EXPECT_EQ(layer.slice.features, decision.shares.features.at(rank));
    EXPECT_EQ(layer.slice.padded_features, decision.shares.intermediate_size.at(rank));
    EXPECT_EQ(layer.slice.experts, decision.shares.num_experts.at(0));
  }
}

void expect_same_for_all(const fs::path& model) {
  const auto checkpoint = Checkpoint::open(model);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message();
  const auto identified = identify(*checkpoint);
  ASSERT_TRUE(identified) << identified.error().message();
  for (const auto& [device, backend] : all_machines()) {
    for (const Parallel& parallel : all_spreads()) {
      expect_same(*checkpoint, *identified, {device, backend, parallel});
    }
  }
}

TEST(Decision, OfTheBundledModelIsWhatPrepareDoes) {
  expect_same_for_all(tests::source_dir() / "models/tiny-moe");
}

TEST(Decision, OfEveryFamilyIsWhatPrepareDoes) {
  const fs::path families = tests::vectors_dir() / "models/families";
  if (!fs::exists(families)) GTEST_SKIP() << families << ", beside the project, is missing";
  for (const auto& family : fs::directory_iterator(families)) expect_same_for_all(family.path());
}

// Widths that few ranks can share, and a layer without experts.
TEST(Decision, OfOddWidthsIsWhatPrepareDoes) {
  for (const std::int64_t width : {5, 16, 24, 48}) {
    const ScratchFolder folder;
    test::TinyConfig config;
    config.expert_width = width;
    config.layers = 3;
    config.dense_layer = 1;
    ASSERT_TRUE(test::TinyModel(config, DType::bf16).write(folder / "model"));
    expect_same_for_all(folder / "model");
  }
}

// Layers without a checkpoint: the deal alone. Of an expert only sizes and schemes count there.
void expect_same_deal(const MoeProblem& whole, const Question& question) {
  SCOPED_TRACE(whole.where + " " + question.text());
  const auto matrix = [](const Scheme& scheme, std::int64_t n, std::int64_t k) {
    QuantizedTensor out;
    out.n = n;
    out.k = k;
    out.scheme = scheme;
    return out;
  };
  ExpertWeights any;
  any.gate = matrix(whole.gate_up, whole.intermediate_size, whole.hidden_size);
  any.up = *any.gate;
  any.down = matrix(whole.down, whole.hidden_size, whole.intermediate_size);
  const DeviceInfo device = device_of(question);
  const Engine engine = engine_of(question);
  const auto said = decide_layer(whole, question.parallel, device,
                                 {.backend = question.backend, .engine = engine});
  for (const int rank : {0, question.parallel.tensor / 2, question.parallel.tensor - 1}) {
    PrepareOptions options;
    options.backend = question.backend;
    options.split = {.tensor_ranks = question.parallel.tensor,
                     .expert_ranks = question.parallel.expert,
                     .rank = rank};
    const auto deal = deal_layer(
        {.any = any, .whole = whole, .options = options, .device = device, .engine = engine});
    ASSERT_EQ(deal.has_value(), said && !said->refused) << (deal ? "" : deal.error().message());
    if (!deal) {
      EXPECT_EQ(deal.error().what, said ? said->refused->what : said.error().what);
      return;
    }
    ASSERT_EQ(deal->backend, said->backend);
    const auto at = static_cast<std::size_t>(rank);
    ASSERT_EQ(deal->slice.features, said->shares.features.at(at));
    ASSERT_EQ(deal->slice.padded_features, said->shares.intermediate_size.at(at));
  }
}

TEST(Decision, OfEveryPublishedLayerIsHowPrepareDealsIt) {
  std::size_t layers = 0;
  for (const char* name : {"models.txt", "own_kinds.txt", "moe_layers.txt"}) {
    const std::string text = file_content(tests::source_dir() / "tests/problems" / name);
    const auto problems = parse_problems(text, name);
    ASSERT_TRUE(problems) << problems.error().message();
    for (const NamedProblem& one : *problems) {
      ++layers;
      for (const auto& [device, backend] : all_machines()) {
        // Of the two cards one in turn.
        if (!backend.empty() && device == (layers % 2 == 0 ? "sm_90" : "sm_100")) continue;
        const Question alone{device, backend, {}};
        const auto first = decide_layer(one.problem, {}, device_of(alone),
                                        {.backend = backend, .engine = engine_of(alone)});
        // What no number of ranks changes is asked once.
        const bool never = first && first->refused && first->legal_ranks.empty();
        for (const Parallel& parallel : all_spreads()) {
          if (never && !backend.empty() && parallel.tensor > 2) continue;
          expect_same_deal(one.problem, {device, backend, parallel});
        }
      }
    }
  }
  EXPECT_GT(layers, 100U);
}

// The line below the choice names what is written for these weights, not all that could be.
TEST(Decision, NamesTheLayoutsOfTheseWeights) {
  const auto problems =
      parse_problems(file_content(tests::source_dir() / "tests/problems/moe_layers.txt"), "shapes");
  const auto whole = find_problem(*problems, "Qwen3-30B-A3B/gptq-int4-g128");
  ASSERT_TRUE(whole);
  const DeviceInfo device = device_of({"cpu:avx512", "", {}});
  const auto decision = decide_layer(*whole, {}, device, {});
  ASSERT_TRUE(decision);
  EXPECT_THAT(explain(decision->share, device, decision->selection),
              testing::HasSubstr("\nlayouts  cpu_int4_lane16, cpu_int4_lane16_scales\n"));
}

}  // namespace
}  // namespace fewbit
