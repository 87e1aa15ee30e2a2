// SPDX-License-Identifier: Apache-2.0
#include "layout/row_order.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <vector>

namespace fewbit {
namespace {

TEST(W13OrderTest, KnowsBothSpellingsInAnyCase) {
  for (const char* name : {"w13", "W13", "up_gate", "Up_Gate"}) {
    EXPECT_EQ(w13_order_from_name(name).value(), W13Order::up_gate) << name;
  }
  for (const char* name : {"w31", "W31", "gate_up", "GATE_UP"}) {
    EXPECT_EQ(w13_order_from_name(name).value(), W13Order::gate_up) << name;
  }
}

TEST(W13OrderTest, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  const auto order = w13_order_from_name("w12");
  ASSERT_FALSE(order);
  EXPECT_EQ(order.error().code, ErrorCode::invalid_argument);
  EXPECT_THAT(order.error().what,
              ::testing::AllOf(::testing::HasSubstr("'w12'"), ::testing::HasSubstr("'w13'"),
                               ::testing::HasSubstr("'up_gate'"), ::testing::HasSubstr("'w31'"),
                               ::testing::HasSubstr("'gate_up'")));
}

TEST(RowRotationTest, TakesGateRowsFirstFromUpGateSources) {
  const RowRotation rows = to_gate_up(128, Gating::gated, W13Order::up_gate);
  EXPECT_EQ(rows.source(0), 64);
  EXPECT_EQ(rows.source(10), 74);
  EXPECT_EQ(rows.source(63), 127);
  EXPECT_EQ(rows.source(64), 0);
  EXPECT_EQ(rows.source(127), 63);
}

TEST(RowRotationTest, MovesNothingForGateUpOrWithoutGate) {
  for (const RowRotation rows : {to_gate_up(192, Gating::gated, W13Order::gate_up),
                                 to_gate_up(192, Gating::ungated, W13Order::up_gate)}) {
    for (std::int64_t n = 0; n < 192; ++n) EXPECT_EQ(rows.source(n), n);
  }
}

TEST(RowRotationTest, ReorderedRowsAreTheRowsOfTheMap) {
  std::vector<std::byte> in(96 * 3);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i);
  for (const std::int64_t shift : {0, 1, 48}) {
    const RowRotation rows{.rows = 96, .shift = shift};
    std::vector<std::byte> out(in.size());
    reorder_rows(rows, in, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto row = static_cast<std::size_t>(rows.source(static_cast<std::int64_t>(i / 3)));
      ASSERT_EQ(out[i], in[row * 3 + i % 3]) << "shift " << shift << " byte " << i;
    }
  }
}

TEST(RowRotationTest, UsesEverySourceRowOnce) {
  const RowRotation rows = to_gate_up(96, Gating::gated, W13Order::up_gate);
  std::set<std::int64_t> sources;
  for (std::int64_t n = 0; n < 96; ++n) sources.insert(rows.source(n));
  EXPECT_EQ(sources.size(), 96U);
  EXPECT_EQ(*sources.begin(), 0);
  EXPECT_EQ(*sources.rbegin(), 95);
}

}  // namespace
}  // namespace fewbit
