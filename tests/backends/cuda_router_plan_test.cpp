// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "backends/cuda_moe/router_plan.hpp"

namespace fewbit::cuda {
namespace {

// Its parts follow each other, each aligned and large enough.
TEST(CudaRouter, ScratchHasRoomForEveryPart) {
  for (const bool projects : {false, true}) {
    for (const auto& [experts, top_k] : {std::pair{1, 1}, {128, 8}, {512, 32}}) {
      for (const std::int64_t tokens : {1, 2, 37, 4096}) {
        const RouterScratch at =
            router_scratch({.experts = experts, .top_k = top_k, .projects = projects}, tokens);
        EXPECT_GE(at.logits, sizeof(RouterState));
        const auto part = [](std::int64_t elements) {
          return 4 * static_cast<std::uint64_t>(elements);
        };
        EXPECT_GE(at.ids, at.logits + (projects ? part(tokens * experts) : 0));
        EXPECT_GE(at.weights, at.ids + part(tokens * top_k));
        EXPECT_GE(at.bytes, at.weights + part(tokens * top_k));
        for (const std::uint64_t place : {at.logits, at.ids, at.weights, at.bytes}) {
          EXPECT_EQ(place % scratch_alignment, 0U);
        }
      }
    }
  }
}

TEST(CudaRouter, RefusesWhatItsKernelsCantTake) {
  MoeProblem problem;
  problem.hidden_size = 64;
  problem.num_experts = 600;
  problem.where = "layer";
  MoeRouter router{.params = {.top_k = 8}, .projection = {}, .bias = {}};
  const auto refusal = [&] {
    const Result<void> checked = check_router_sizes(problem, router);
    return checked ? std::string("none") : checked.error().message();
  };
  EXPECT_EQ(refusal(), "layer: router with experts 600, on a device at most 512");
  problem.num_experts = 64;
  problem.routed_experts = 513;
  EXPECT_EQ(refusal(), "layer: router with experts 513, on a device at most 512");
  problem.routed_experts = 512;
  EXPECT_EQ(refusal(), "none");
  router.params.top_k = 33;
  EXPECT_EQ(refusal(), "layer: router with top_k 33, on a device at most 32");
  router.params.top_k = 32;
  router.params.num_groups = 64;
  EXPECT_EQ(refusal(), "layer: router with num_groups 64, on a device at most 32");
}

// The first fault in the order of tokens, then of experts, is the largest.
TEST(CudaRouter, FaultsNameTokenAndExpert) {
  EXPECT_TRUE(check_fault(0, 8, "layer"));
  EXPECT_GT(router_fault(3, 511), router_fault(4, 0));
  EXPECT_GT(router_fault(3, 5), router_fault(3, 6));
  EXPECT_EQ(check_fault(router_fault(2'000'000, 511), 512, "layer").error().message(),
            "layer: logit of token 2000000, expert 511 is NaN or infinite, expected a number below "
            "infinity");
  EXPECT_EQ(check_fault(router_fault(0, router_all_masked), 512, "layer").error().message(),
            "layer: all 512 logits of token 0 are -inf: no softmax");
}

}  // namespace
}  // namespace fewbit::cuda
