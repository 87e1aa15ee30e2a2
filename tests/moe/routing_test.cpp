// SPDX-License-Identifier: Apache-2.0
#include "moe/routing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace fewbit {
namespace {

using testing::ElementsAre;
using Ids = std::vector<std::int32_t>;

struct Sorted {
  Ids counts, offsets, routes;
  std::int32_t kept = 0;
};

Sorted sort(const Ids& ids, std::size_t experts, const Ids& map = {}) {
  // Filled with garbage: everything must be written.
  Sorted s{Ids(experts, 77), Ids(experts + 1, 77), Ids(ids.size(), 77)};
  s.kept = sort_routes(ids, map, {s.counts, s.offsets, s.routes});
  return s;
}

TEST(Routing, SortsRoutesByExpertInRouteOrder) {
  const Sorted s = sort({2, 0, 0, 2, 2, 3}, 4);
  EXPECT_THAT(s.counts, ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(s.offsets, ElementsAre(0, 2, 2, 5, 6));
  EXPECT_THAT(s.routes, ElementsAre(1, 2, 0, 3, 4, 5));
  EXPECT_EQ(s.kept, 6);
}

TEST(Routing, DropsIdsOutsideTheExpertsAndKeepsDuplicates) {
  const Sorted s = sort({-1, 1, 1, 2, INT32_MIN, INT32_MAX}, 2);
  EXPECT_THAT(s.counts, ElementsAre(0, 2));
  EXPECT_THAT(s.routes, ElementsAre(1, 2, no_expert, no_expert, no_expert, no_expert));
  EXPECT_EQ(s.kept, 2);
}

TEST(Routing, MapsGlobalIdsAndDropsWhatIsElsewhere) {
  // Global expert 4 maps outside the two local experts, 5 is outside the map.
  const Sorted s = sort({0, 3, 1, 4, 5, -1}, 2, {1, -1, -1, 0, 2});
  EXPECT_THAT(s.counts, ElementsAre(1, 1));
  EXPECT_THAT(s.routes, ElementsAre(1, 0, no_expert, no_expert, no_expert, no_expert));
}

TEST(Routing, HandlesNoRoutesAndOneExpertWithAll) {
  EXPECT_THAT(sort({}, 3).offsets, ElementsAre(0, 0, 0, 0));
  const Sorted s = sort({1, 1, 1}, 3);
  EXPECT_THAT(s.counts, ElementsAre(0, 3, 0));
  EXPECT_THAT(s.routes, ElementsAre(0, 1, 2));
}

// Every kept route stands exactly once, inside the range of its own expert.
TEST(Routing, PlacesEveryRouteOnceInItsExpertsRange) {
  std::mt19937 random(7);
  for (const std::size_t experts : {1U, 8U, 33U}) {
    Ids ids(517);
    for (auto& id : ids) {
      id = static_cast<std::int32_t>(random() % (experts + 2)) - 1;
    }
    const Sorted s = sort(ids, experts);
    std::vector<int> seen(ids.size(), 0);
    for (std::size_t e = 0; e < experts; ++e) {
      ASSERT_EQ(s.offsets[e + 1] - s.offsets[e], s.counts[e]);
      for (auto i = static_cast<std::size_t>(s.offsets[e]);
           i < static_cast<std::size_t>(s.offsets[e + 1]); ++i) {
        const auto route = static_cast<std::size_t>(s.routes[i]);
        EXPECT_EQ(ids[route], static_cast<std::int32_t>(e));
        ++seen[route];
      }
    }
    for (std::size_t r = 0; r < ids.size(); ++r) {
      const bool valid = ids[r] >= 0 && ids[r] < static_cast<std::int32_t>(experts);
      EXPECT_EQ(seen[r], valid ? 1 : 0) << "route " << r << " id " << ids[r];
    }
  }
}

}  // namespace
}  // namespace fewbit
