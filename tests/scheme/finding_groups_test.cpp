// SPDX-License-Identifier: Apache-2.0
#include "scheme/finding_groups.hpp"

#include <gtest/gtest.h>

namespace fewbit {
namespace {

Finding finding(Level level, const char* where) {
  return {level, "rule", where, "found", "expected"};
}

TEST(FindingGroups, ShowsTheWorstOfTheHighestLevelElseTheFirst) {
  FindingGroups groups;
  groups.add(Role::up_proj, finding(Level::warning, "a"), 3);
  groups.add(Role::up_proj, finding(Level::error, "b"), 1);
  groups.add(Role::up_proj, finding(Level::error, "c"), 2);
  groups.add(Role::up_proj, finding(Level::error, "d"), 2);
  groups.add(Role::up_proj, finding(Level::warning, "e"), 9);
  groups.add(Role::down_proj, finding(Level::info, "f"));
  groups.add(Role::down_proj, finding(Level::info, "g"));
  const std::vector<Finding> taken = std::move(groups).take();
  ASSERT_EQ(taken.size(), 2U);
  EXPECT_EQ(taken[0].where, "c and 4 more (up_proj)");
  EXPECT_EQ(taken[0].level, Level::error);
  EXPECT_EQ(taken[1].where, "f and 1 more (down_proj)");
}

}  // namespace
}  // namespace fewbit
