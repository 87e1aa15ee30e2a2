// SPDX-License-Identifier: Apache-2.0
#include "select/select.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fewbit/selection.hpp"
#include "select/run_variants.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

MoeProblem good_problem() {
  MoeProblem problem;
  problem.hidden_size = 256;
  problem.intermediate_size = 128;
  problem.num_experts = 8;
  problem.top_k = 2;
  problem.gate_up = nvfp4_scheme();
  problem.down = nvfp4_scheme();
  problem.max_tokens = 4;
  problem.where = "layer 7";
  return problem;
}

DeviceInfo cpu() {
  DeviceInfo device;
  device.name = "some CPU";
  device.built_for = {"generic"};
  return device;
}

DeviceInfo gpu(int compute_capability) {
  DeviceInfo device;
  device.kind = DeviceKind::cuda;
  device.name = "some GPU";
  device.compute_capability = compute_capability;
  device.sm_count = 132;
  device.built_for = {"generic"};
  return device;
}

Scheme unreadable_scheme() {
  Scheme scheme;
  scheme.producer = Producer::gptq;
  scheme.weight = DType::u4;
  scheme.scale = ScaleSpec{.dtype = DType::f16, .granularity = {.rows = 1, .cols = 128}};
  scheme.zero_points = true;
  return scheme;
}

TEST(Select, ReferenceIsLastAndFoundByName) {
  ASSERT_FALSE(all_backends().empty());
  EXPECT_STREQ(all_backends().back()->name, "reference");
  for (const Backend* backend : all_backends()) EXPECT_EQ(find_backend(backend->name), backend);
  EXPECT_EQ(find_backend("no such"), nullptr);
}

TEST(Select, FirstWithoutRefusalsIsChosen) {
  const auto selection = select_backend(good_problem(), cpu());
  ASSERT_TRUE(selection) << selection.error().message();
  ASSERT_EQ(selection->candidates.size(), all_backends().size());
  for (std::size_t i = 0; i < selection->candidates.size(); ++i) {
    EXPECT_EQ(selection->candidates[i].backend, all_backends()[i]->name);
  }
  EXPECT_FALSE(selection->forced);
  for (const Candidate& candidate : selection->candidates) {
    if (candidate.backend == selection->chosen) {
      EXPECT_TRUE(candidate.refusals.empty());
      break;
    }
    EXPECT_FALSE(candidate.refusals.empty()) << candidate.backend << " was passed over";
  }
}

TEST(Select, ForcedBackendIsUsed) {
  const auto selection = select_backend(good_problem(), cpu(), {.backend = "reference"});
  ASSERT_TRUE(selection);
  EXPECT_EQ(selection->chosen, "reference");
  EXPECT_TRUE(selection->forced);
  EXPECT_EQ(selection->numerics, "bf16 activations, f64 accumulation");
}

// A refused backend is never replaced, and all of its reasons are told, with both sides.
TEST(Select, ForcedBackendIsRefusedWithEveryUnmetNeed) {
  MoeProblem problem = good_problem();
  problem.down = unreadable_scheme();
  problem.down.pre_quant_scale = true;
  problem.activation_dtype = DType::i8;
  const auto selection = select_backend(problem, gpu(90), {.backend = "reference"});
  ASSERT_FALSE(selection);
  EXPECT_EQ(selection.error().code, ErrorCode::unsupported);
  EXPECT_THAT(selection.error().message(),
              AllOf(HasSubstr("layer 7: backend reference can't run it: "),
                    HasSubstr("device: needs a CPU, has CUDA device some GPU"),
                    HasSubstr("weight: needs down without a scale for the activations"),
                    HasSubstr(scheme_text(problem.down)),
                    HasSubstr("dtype: needs activations in bf16, f16 or f32, has i8"),
                    Not(HasSubstr("gate and up"))));
}

TEST(Select, UnknownForcedBackendListsTheKnownOnes) {
  const auto selection = select_backend(good_problem(), cpu(), {.backend = "fastest"});
  ASSERT_FALSE(selection);
  EXPECT_EQ(selection.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(selection.error().message(),
              AllOf(HasSubstr("unknown backend \"fastest\", known: "), HasSubstr("reference")));
}

TEST(Select, WithoutAnyBackendEveryReasonIsListed) {
  const auto selection = select_backend(good_problem(), gpu(75));
  ASSERT_FALSE(selection);
  EXPECT_EQ(selection.error().code, ErrorCode::unsupported);
  for (const Backend* backend : all_backends()) {
    EXPECT_THAT(selection.error().what, HasSubstr("\n  " + std::string(backend->name) + ": "));
  }
}

TEST(Select, CodeThatIsNotInTheBinaryIsAReasonOfItsOwn) {
  DeviceInfo device = cpu();
  device.built_for = {"sm_90a"};
  const auto selection = select_backend(good_problem(), device, {.backend = "reference"});
  ASSERT_FALSE(selection);
  EXPECT_THAT(selection.error().what, HasSubstr("not built: needs code for generic, has sm_90a"));
}

// Over devices and odd problems: a refusal has text on both sides, and forcing a backend works
// exactly when it has no refusals.
TEST(Select, RefusedMeansReasonsAndForcedFollowsThem) {
  std::vector<DeviceInfo> devices{cpu()};
  for (const char* name : {"cpu:generic", "cpu:avx2", "cpu:avx512", "cpu:amx"}) {
    devices.push_back(*describe_device(name));
  }
  for (const int capability : {75, 80, 89, 90, 100, 120, 121}) devices.push_back(gpu(capability));
  std::vector<MoeProblem> problems(5, good_problem());
  problems[1].hidden_size = 250;
  problems[2].gate_up = unreadable_scheme();
  problems[3].activation = {.kind = Activation::relu2};
  problems[4].activation_dtype = DType::f32;
  problems[4].expert_map = true;
  problems[4].router_weight_side = RouterWeightSide::input;
  for (const DeviceInfo& device : devices) {
    for (const MoeProblem& problem : problems) {
      for (const Backend* backend : all_backends()) {
        const std::vector<Refusal> refusals = refusals_of(*backend, problem, device);
        for (const Refusal& refusal : refusals) {
          EXPECT_FALSE(refusal.needs.empty()) << backend->name;
          EXPECT_FALSE(refusal.has.empty()) << backend->name << " needs " << refusal.needs;
          EXPECT_STRNE(reason_name(refusal.reason), "unknown");
        }
        const auto forced = select_backend(problem, device, {.backend = backend->name});
        ASSERT_EQ(forced.has_value(), refusals.empty()) << backend->name;
        if (forced) {
          EXPECT_EQ(forced->chosen, backend->name);
        } else {
          EXPECT_THAT(forced.error().what, HasSubstr(refusals_text(refusals)));
        }
      }
    }
  }
}

std::string problem_error(const MoeProblem& problem) {
  const auto selection = select_backend(problem, cpu());
  return selection ? "no error" : selection.error().message();
}

TEST(Select, ProblemsThatMakeNoSenseAreRefusedBeforeAnyBackend) {
  MoeProblem problem = good_problem();
  problem.hidden_size = 0;
  EXPECT_EQ(problem_error(problem), "layer 7: hidden_size is 0, expected 1 to 2147483647");
  problem = good_problem();
  problem.top_k = -1;
  EXPECT_THAT(problem_error(problem), HasSubstr("top_k is -1"));
  problem = good_problem();
  problem.activation = {.kind = Activation::relu2, .limit = 7.0F};
  EXPECT_THAT(problem_error(problem), HasSubstr("relu2 has no limit, but it is 7"));
  problem.activation = {.kind = Activation::silu, .limit = -1.0F};
  EXPECT_THAT(problem_error(problem), HasSubstr("limit of silu is -1, expected a finite number"));
  problem.activation = {.kind = Activation::silu, .alpha = 1.702F};
  EXPECT_THAT(problem_error(problem), HasSubstr("silu has no alpha and beta, but they are 1.702"));
  problem.activation = {.kind = Activation::swigluoai, .alpha = std::nanf("")};
  EXPECT_THAT(problem_error(problem), HasSubstr("swigluoai with alpha nan"));
}

// None where another engine decides, or nothing is chosen.
TEST(RunVariants, AreOfTheChosenBackendOnTheDevice) {
  const MoeProblem problem = good_problem();
  const DeviceInfo device = cpu();
  const auto selection = select_backend(problem, device, {.backend = "reference"});
  ASSERT_TRUE(selection);
  std::vector<std::int64_t> tokens;
  for (const RunVariant& variant : run_variants(problem, device, *selection)) {
    tokens.push_back(variant.tokens);
    EXPECT_EQ(variant.text, "one weight row at a time");
  }
  EXPECT_THAT(tokens, ::testing::ElementsAre(1, 16, 512));
  const auto other =
      select_backend(problem, *describe_device("sm_90"), {.backend = "", .engine = Engine::vllm});
  ASSERT_TRUE(other);
  EXPECT_THAT(run_variants(problem, device, *other), ::testing::IsEmpty());
  EXPECT_THAT(run_variants(problem, device, Selection()), ::testing::IsEmpty());
}

TEST(Explain, ShowsTheLayerEveryCandidateEveryReasonAndTheVariants) {
  MoeProblem problem = good_problem();
  problem.activation = {.kind = Activation::swigluoai, .alpha = 1.702F, .beta = 1, .limit = 7.0F};
  problem.expert_map = true;
  const DeviceInfo device = cpu();
  const auto selection = select_backend(problem, device, {.backend = "reference"});
  ASSERT_TRUE(selection);
  const std::string text = explain(problem, device, *selection);
  EXPECT_THAT(text, AllOf(HasSubstr("layer 7"),
                          HasSubstr("8 experts, top-2, hidden 256, "
                                    "intermediate 128, swigluoai alpha 1.702 "
                                    "beta 1 limit 7"),
                          HasSubstr("expert map"), HasSubstr(scheme_text(problem.gate_up)),
                          HasSubstr("some CPU, generic, 1 thread\n"), HasSubstr("chosen, forced"),
                          HasSubstr(selection->numerics)));
  for (const Candidate& candidate : selection->candidates) {
    EXPECT_THAT(text, HasSubstr(candidate.backend));
    for (const Refusal& refusal : candidate.refusals) {
      EXPECT_THAT(text, HasSubstr(std::string(reason_name(refusal.reason)) + ": needs " +
                                  refusal.needs + ", has " + refusal.has));
    }
  }
  for (const char* tokens : {"  1 token ", " 16 tokens", "512 tokens"}) {
    EXPECT_THAT(text, HasSubstr(tokens));
  }
}

// A machine that is only asked about is not refused for what this binary was built without, but
// nothing is run there.
TEST(DescribedDevice, IsAnsweredByItsOwnRules) {
  for (DeviceInfo device : {*describe_device("sm_90"), *describe_device("cpu:neon")}) {
    device.built_for = {"generic"};
    const auto selection = select_backend(good_problem(), device);
    ASSERT_TRUE(selection) << selection.error().message();
    const bool card = device.kind == DeviceKind::cuda;
    EXPECT_EQ(selection->chosen, card ? "cuda_moe" : "cpu_neon");
    const auto chosen =
        std::ranges::find(selection->candidates, selection->chosen, &Candidate::backend);
    EXPECT_EQ(chosen->unbuilt,
              card ? "needs code for sm_90a, has generic" : "needs code for neon, has generic");
    EXPECT_THAT(explain(good_problem(), device, *selection),
                HasSubstr("not built: " + chosen->unbuilt));
    const auto run = selected_backend(*selection, good_problem(), device);
    ASSERT_FALSE(run);
    EXPECT_THAT(run.error().what, HasSubstr("not built: " + chosen->unbuilt));
    device.described = false;
    const auto real = select_backend(good_problem(), device);
    EXPECT_TRUE(!real || real->chosen != selection->chosen);
  }
}

TEST(ListBackends, SaysWhatIsBuiltAndWhatTheDeviceCanRun) {
  const auto on_cpu = list_backends(cpu());
  ASSERT_EQ(on_cpu.size(), all_backends().size());
  EXPECT_EQ(on_cpu.back().name, "reference");
  EXPECT_EQ(on_cpu.back().layout, "row_major");
  EXPECT_FALSE(on_cpu.back().summary.empty());
  EXPECT_TRUE(on_cpu.back().built);
  EXPECT_TRUE(on_cpu.back().usable);
  const auto on_gpu = list_backends(gpu(90));
  EXPECT_TRUE(on_gpu.back().built);
  EXPECT_FALSE(on_gpu.back().usable);
  DeviceInfo bare = cpu();
  bare.built_for.clear();
  EXPECT_FALSE(list_backends(bare).back().built);
  EXPECT_FALSE(list_backends(bare).back().usable);
}

}  // namespace
}  // namespace fewbit
