// SPDX-License-Identifier: Apache-2.0
#include "moe/route_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace fewbit {
namespace {

TEST(RoutePlanTest, AnAverageExpertFillsLessThanNineTenthsOfItsBlock) {
  EXPECT_EQ(route_block_size({.routes = 16, .experts = 2}), 16);  // 8 is full
  EXPECT_EQ(route_block_size({.routes = 14, .experts = 2}), 8);   // 7 < 7.2
  EXPECT_EQ(route_block_size({.routes = 1 << 20, .experts = 2}), 64);
}

// The worst that routes can do: one in as many experts as there are, the rest in the last one.
TEST(RoutePlanTest, SlotsHoldTheWorstSpreadOfRoutes) {
  for (const std::int64_t block : route_block_sizes) {
    for (std::int64_t experts = 1; experts < 20; ++experts) {
      for (std::int64_t routes = 1; routes < 200; ++routes) {
        const std::int64_t used = std::min(routes, experts);
        const std::int64_t last = routes - (used - 1);
        const std::int64_t worst = (used - 1) * block + round_up(last, block);
        const RouteCount count{.routes = routes, .experts = experts};
        EXPECT_GE(route_slots(count, block), worst);
        EXPECT_GE(route_capacity(count).slots, worst);
        EXPECT_GE(route_capacity(count).blocks, ceil_div(worst, block));
      }
    }
  }
}

TEST(RoutePlanTest, SplitSumsAreLimitedByTheMachine) {
  const SplitGemm wide{.columns = 4096, .slots = 4096, .block_size = 64, .multiprocessors = 132};
  EXPECT_EQ(split_gemm_elements(wide), 4 * 132 * 64 * 256);
  const SplitGemm small{.columns = 512, .slots = 16, .block_size = 8, .multiprocessors = 132};
  EXPECT_EQ(split_gemm_elements(small), 2 * 512 * 16);
}

}  // namespace
}  // namespace fewbit
