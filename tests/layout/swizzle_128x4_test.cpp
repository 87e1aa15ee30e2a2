// SPDX-License-Identifier: Apache-2.0
#include "layout/swizzle_128x4.hpp"

#include <gtest/gtest.h>

namespace fewbit {
namespace {

TEST(Swizzle128x4Test, PutsTheWorkedElementAtByte1750) {
  constexpr Dims grid{.n = 256, .k = 7};
  EXPECT_EQ(Swizzle128x4<8>::place(grid, 173, 6).byte, 1750);
  EXPECT_EQ(Swizzle128x4<8>::inverse(grid, {.byte = 1750, .bit = 0}), (Element{.n = 173, .k = 6}));
}

TEST(Swizzle128x4Test, PadsRowsTo128AndColumnsTo4) {
  constexpr Dims grid{.n = 130, .k = 7};
  EXPECT_EQ(Swizzle128x4<8>::padded(grid), (Dims{.n = 256, .k = 8}));
  EXPECT_EQ(Swizzle128x4<8>::bytes(grid), 256 * 8);
  EXPECT_EQ(Swizzle128x4<16>::bytes(grid), 256 * 8 * 2);
  EXPECT_EQ(Swizzle128x4<8>::bytes({.n = 1, .k = 1}), 512);
}

TEST(Swizzle128x4Test, KeepsFourColumnsTogetherAndInterleavesRows32Apart) {
  constexpr Dims grid{.n = 128, .k = 8};
  EXPECT_EQ(Swizzle128x4<8>::place(grid, 0, 1).byte, 1);
  EXPECT_EQ(Swizzle128x4<8>::place(grid, 32, 0).byte, 4);
  EXPECT_EQ(Swizzle128x4<8>::place(grid, 1, 0).byte, 16);
  EXPECT_EQ(Swizzle128x4<8>::place(grid, 0, 4).byte, 512);
  EXPECT_EQ(Swizzle128x4<16>::place(grid, 0, 4).byte, 1024);
}

}  // namespace
}  // namespace fewbit
