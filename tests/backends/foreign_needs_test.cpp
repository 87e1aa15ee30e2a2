// SPDX-License-Identifier: Apache-2.0
// What other engines' own tables let pass, though their kernels drop it or cannot decode it, is
// among the refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/foreign_case.hpp"

namespace fewbit {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// "needs …, has …" of each unmet need.
std::vector<std::string> needs(const char* backend, const MoeProblem& problem, const char* device) {
  std::vector<std::string> out;
  for (const Refusal& r : find_backend(backend)->moe_refusals(problem, *describe_device(device))) {
    out.push_back("needs " + r.needs + ", has " + r.has);
  }
  return out;
}

MoeProblem layer(const char* scheme) {
  MoeProblem problem = test::integer_case(scheme, 256).problem;
  problem.num_experts = 8;
  problem.top_k = 2;
  return problem;
}

TEST(ForeignNeeds, Int4EmulationDropsBiasesAndGivesBf16) {
  MoeProblem problem = layer("awq-int4-g128");
  EXPECT_THAT(needs("vllm_emulation_int4", problem, "sm_90"), IsEmpty());
  problem.biases = true;
  problem.activation_dtype = DType::f16;
  EXPECT_THAT(needs("vllm_emulation_int4", problem, "sm_90"),
              UnorderedElementsAre(HasSubstr("needs experts without biases, has biases"),
                                   HasSubstr("needs activations in bf16, has f16")));
}

TEST(ForeignNeeds, XpuLayoutHasNoPlaceForZeroPoints) {
  EXPECT_THAT(needs("xpu_int4", layer("gptq-int4-g128"), "xpu"), IsEmpty());
  EXPECT_THAT(needs("xpu_int4", layer("awq-int4-g128"), "xpu"),
              UnorderedElementsAre("needs weights without stored zero points, has zero points"));
}

TEST(ForeignNeeds, Mxint4KernelsGetNoParametersAndNoPartsOfBlocks) {
  MoeProblem problem = layer("ct-int4-g32");
  EXPECT_THAT(needs("flashinfer_trtllm_mxint4", problem, "sm_100"), IsEmpty());
  problem.activation = {.kind = Activation::swigluoai, .alpha = 1.702F, .beta = 1, .limit = 7.0F};
  problem.intermediate_size = 384;
  EXPECT_THAT(needs("flashinfer_trtllm_mxint4", problem, "sm_100"),
              UnorderedElementsAre(HasSubstr("needs silu, has swigluoai"),
                                   HasSubstr("needs intermediate_size % 256 = 0, has 384")));
}

TEST(ForeignNeeds, MxEmulationDecodesMxfp4Alone) {
  EXPECT_THAT(needs("vllm_emulation_mx", layer("gptq-int4-g128"), "sm_90"),
              Contains(HasSubstr("needs weights in mxfp4")));
  MoeProblem problem = layer("gptq-int4-g128");
  problem.gate_up = nvfp4_scheme();
  problem.gate_up.scale = ScaleSpec{.dtype = DType::f8_e8m0, .granularity = {1, 32}};
  problem.down = problem.gate_up;
  EXPECT_THAT(needs("vllm_emulation_mx", problem, "sm_90"), IsEmpty());
}

// Its table takes groups of 32 from GPTQ and AWQ, not from compressed-tensors; the layout takes
// them all.
TEST(ForeignNeeds, CpuInt4TakesGroupsOf32AsItsEngineDoes) {
  for (const char* scheme : {"gptq-int4-g32", "awq-int4-g32"}) {
    EXPECT_THAT(needs("vllm_cpu_int4", layer(scheme), "cpu:amx"), IsEmpty()) << scheme;
  }
  EXPECT_THAT(needs("vllm_cpu_int4", layer("ct-int4-g32"), "cpu:amx"),
              UnorderedElementsAre(HasSubstr("needs weights in int4 with 16-bit activations")));
  for (const char* scheme : {"gptq-int4-g32", "awq-int4-g32", "ct-int4-g32"}) {
    EXPECT_TRUE(test::pack("vllm_cpu_int4", test::integer_case(scheme, 128))) << scheme;
  }
}

}  // namespace
}  // namespace fewbit
