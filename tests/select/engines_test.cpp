// SPDX-License-Identifier: Apache-2.0
// Backends of other engines: decided about, never run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "select/problem_list.hpp"
#include "select/select.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::HasSubstr;

MoeProblem layer(const char* scheme) {
  MoeProblem problem;
  problem.hidden_size = 2048;
  problem.intermediate_size = 768;
  problem.num_experts = 128;
  problem.top_k = 8;
  problem.gate_up = scheme_from_name(scheme).value();
  problem.down = problem.gate_up;
  problem.where = "layer 3";
  return problem;
}

Result<Selection> ask(const MoeProblem& problem, const char* device, const char* backend = "",
                      Engine engine = Engine::vllm) {
  return select_backend(problem, *describe_device(device), {.backend = backend, .engine = engine});
}

std::string error_of(const Result<Selection>& selection) {
  return selection ? "chose " + selection->chosen : selection.error().message();
}

TEST(Engines, NamesAreUniqueAndNothingRunsHere) {
  std::set<std::string> names;
  for (const Backend* backend : all_backends()) {
    EXPECT_TRUE(names.insert(backend->name).second) << backend->name;
    EXPECT_TRUE(backend->runs_here());
  }
  for (const Backend* backend : foreign_backends()) {
    EXPECT_TRUE(names.insert(backend->name).second) << backend->name;
    EXPECT_FALSE(backend->runs_here()) << backend->name;
    EXPECT_EQ(find_backend(backend->name), backend);
  }
}

TEST(Engines, TheirBackendsAreNeverChosenToRunHere) {
  const MoeProblem problem = layer("gptq-int4-g128");
  EXPECT_EQ(error_of(ask(problem, "sm_90")), "chose marlin");
  const auto here = ask(problem, "cpu:generic", "", Engine::fewbit);
  ASSERT_TRUE(here);
  for (const Candidate& candidate : here->candidates) {
    EXPECT_TRUE(find_backend(candidate.backend)->runs_here());
  }
  EXPECT_EQ(error_of(ask(problem, "sm_90", "marlin", Engine::fewbit)),
            "backend: backend marlin is run by vLLM, not by fewbit, which has cuda_moe, cpu_amx, "
            "cpu_avx512, cpu_avx2, cpu_neon, cpu_generic, reference");
  EXPECT_TRUE(
      error_of(ask(problem, "sm_90", "reference"))
          .starts_with("backend: backend reference is run by fewbit, not by vLLM, which has "
                       "marlin, batched_marlin, "));
  EXPECT_THAT(error_of(ask(problem, "sm_90", "marlinn")),
              AllOf(HasSubstr("unknown backend \"marlinn\", known: marlin, batched_marlin"),
                    testing::Not(HasSubstr("reference"))));
  Selection forged = *ask(problem, "sm_90");
  EXPECT_FALSE(selected_backend(forged, problem, *describe_device("sm_90")));
}

TEST(Engines, ForcedIsUsedOrRefusedWithEveryNeed) {
  MoeProblem problem = layer("gptq-int4-g64");
  EXPECT_EQ(error_of(ask(problem, "sm_90", "humming")), "chose humming");
  problem = layer("awq-int4-g128");
  problem.activation = {.kind = Activation::swigluoai, .alpha = 1.702F, .beta = 1, .limit = 7.0F};
  problem.hidden_size = 2880;
  problem.biases = true;
  EXPECT_THAT(
      error_of(ask(problem, "sm_90", "flashinfer_trtllm_mxint4")),
      AllOf(HasSubstr("layer 3: backend flashinfer_trtllm_mxint4 can't run it: "),
            HasSubstr("device: needs compute capability 10.0 to 10.9, has compute capability 9.0"),
            HasSubstr("weight: needs weights in int4_g32 with 16-bit activations, has int4 with "
                      "16-bit activations ("),
            HasSubstr("weight: needs weights without stored zero points, has zero points"),
            HasSubstr("weight: needs experts without biases, has biases"),
            HasSubstr("activation: needs silu, has swigluoai"),
            HasSubstr("shape: needs hidden_size % 256 = 0, has 2880")));
}

// A backend behind a switch is shown as possible, passed over, and used when asked for.
TEST(Engines, SwitchesMustBeAskedFor) {
  MoeProblem problem = layer("ct-int4-g32");
  const auto by_itself = ask(problem, "sm_100");
  ASSERT_TRUE(by_itself);
  EXPECT_EQ(by_itself->chosen, "marlin");
  ASSERT_EQ(by_itself->candidates.front().backend, "flashinfer_trtllm_mxint4");
  EXPECT_TRUE(by_itself->candidates.front().refusals.empty());
  EXPECT_THAT(by_itself->candidates.front().only_forced,
              HasSubstr("VLLM_USE_FLASHINFER_MOE_INT4=1"));
  EXPECT_EQ(error_of(ask(problem, "sm_100", "flashinfer_trtllm_mxint4")),
            "chose flashinfer_trtllm_mxint4");
  const std::string text = explain(problem, *describe_device("sm_100"), *by_itself);
  EXPECT_THAT(text, AllOf(HasSubstr("backends of vLLM, in its order; not run here"),
                          HasSubstr("only when forced: VLLM_USE_FLASHINFER_MOE_INT4=1"),
                          HasSubstr("chosen")));
}

TEST(Engines, ActOrderLeavesNoRoomForPadding) {
  MoeProblem problem = layer("gptq-int4-g32");
  problem.intermediate_size = 352;
  EXPECT_EQ(error_of(ask(problem, "sm_90", "marlin")), "chose marlin");
  problem.down.act_order = ActOrder::group;
  problem.gate_up.act_order = ActOrder::group;
  EXPECT_THAT(error_of(ask(problem, "sm_90", "marlin")),
              HasSubstr("shape: needs intermediate_size % 64 = 0, has 352"));
}

TEST(Engines, TheArithmeticIsToldWhereTheNameOfTheFormatMisleads) {
  MoeProblem problem = layer("gptq-int4-g128");
  EXPECT_THAT(ask(problem, "cpu:amx")->numerics, HasSubstr("int8 activations inside"));
  // W4A4 weights that Marlin runs with 16-bit activations.
  problem = layer("nvfp4");
  const auto marlin = ask(problem, "sm_80");
  ASSERT_TRUE(marlin) << marlin.error().message();
  EXPECT_EQ(marlin->chosen, "marlin");
  EXPECT_EQ(marlin->numerics, "16-bit activations, f32 accumulation");
}

TEST(Engines, DTypesFollowTheCapability) {
  MoeProblem problem = layer("gptq-int4-g128");
  EXPECT_THAT(error_of(ask(problem, "sm_75", "marlin")),
              HasSubstr("dtype: needs activations in f16, has bf16"));
  problem.activation_dtype = DType::f16;
  EXPECT_EQ(error_of(ask(problem, "sm_75", "marlin")), "chose marlin");
}

TEST(Engines, ExpertsOnOtherRanksNeedAMapThatSomeLack) {
  MoeProblem problem = layer("gptq-int4-g128");
  problem.parallel.expert = 4;
  EXPECT_THAT(error_of(ask(problem, "cpu:amx", "vllm_cpu_int4")),
              HasSubstr("parallel: needs all experts on one rank, has experts over 4 ranks"));
  problem.parallel.expert = 1;
  problem.expert_map = true;
  EXPECT_THAT(error_of(ask(problem, "cpu:amx", "vllm_cpu_int4")),
              HasSubstr("routing: needs experts without a map, has expert map"));
}

TEST(Engines, ListingNamesTheEngineAndWhatTheDeviceCouldRun) {
  const auto on_hopper = list_backends(*describe_device("sm_90"), Engine::vllm);
  ASSERT_FALSE(on_hopper.empty());
  for (const BackendDescription& backend : on_hopper) {
    EXPECT_EQ(backend.engine, Engine::vllm);
    EXPECT_FALSE(backend.built);
    if (backend.name == "marlin" || backend.name == "xpu_int4") {
      EXPECT_EQ(backend.usable, backend.name == "marlin") << backend.name;
    }
  }
}

}  // namespace
}  // namespace fewbit
