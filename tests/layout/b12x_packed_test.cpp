// SPDX-License-Identifier: Apache-2.0
// The packed 16 x 64 tile against worked values of the engines' own repacking.
#include "layout/b12x_packed.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout/pack.hpp"

namespace fewbit {
namespace {

std::uint32_t word(const std::vector<std::byte>& bytes, std::size_t index) {
  return static_cast<std::uint32_t>(
      read_bits<32>(bytes, {.byte = static_cast<std::int64_t>(4 * index), .bit = 0}));
}

class B12xPackedWorked : public ::testing::Test {
 protected:
  static constexpr Dims dims{.n = 128, .k = 32};
  static std::int64_t code(std::int64_t n, std::int64_t k) { return (n + n / 16 + 3 * k) & 15; }
  std::vector<std::byte> packed() const {
    std::vector<std::byte> out(static_cast<std::size_t>(B12xPacked::bytes(dims)));
    pack<B12xPacked>(dims, code, out);
    return out;
  }
};

TEST_F(B12xPackedWorked, HasTheKnownWords) {
  const auto bytes = packed();
  EXPECT_EQ(word(bytes, 0), 0x3bb30880U);
  EXPECT_EQ(word(bytes, 1), 0x4cc41991U);
  EXPECT_EQ(word(bytes, 417), 0xa22a7ff7U);
}

TEST_F(B12xPackedWorked, PutsElement90Column25InTheHighNibbleOfByte1671) {
  EXPECT_EQ(code(90, 25), 10);
  EXPECT_EQ(B12xPacked::place(dims, 90, 25), (Place{.byte = 1671, .bit = 4}));
  EXPECT_EQ(std::to_integer<int>(packed()[1671]) >> 4, 10);
  EXPECT_EQ(B12xPacked::inverse(dims, {.byte = 1671, .bit = 4}), (Element{.n = 90, .k = 25}));
}

// The rows of a tile as the engines' documentation lists them: word 4t + w holds column
// 16w + t/4, k = 2(t%4) + {0, 1, 8, 9}, then the same of column + 8; nibble i is value
// {0, 2, 4, 6, 1, 3, 5, 7}[i].
TEST(B12xPackedTest, AgreesWithTheLaneByLaneDescription) {
  constexpr Dims d{.n = 64, .k = 16};
  constexpr std::array<std::int64_t, 8> order = {0, 2, 4, 6, 1, 3, 5, 7};
  constexpr std::array<std::int64_t, 4> rows = {0, 1, 8, 9};
  for (std::int64_t t = 0; t < 32; ++t) {
    for (std::int64_t w = 0; w < 4; ++w) {
      for (std::size_t nibble = 0; nibble < 8; ++nibble) {
        const std::int64_t v = order[nibble];
        const std::int64_t n = 16 * w + t / 4 + 8 * (v / 4);
        const std::int64_t k = 2 * (t % 4) + rows[static_cast<std::size_t>(v % 4)];
        const auto at = static_cast<std::int64_t>(nibble);
        EXPECT_EQ(B12xPacked::place(d, n, k),
                  (Place{.byte = 4 * (4 * t + w) + at / 2, .bit = static_cast<int>(at % 2 * 4)}))
            << "lane " << t << " word " << w << " nibble " << nibble;
      }
    }
  }
}

TEST(B12xPackedTest, AcceptsWholeTilesOnly) {
  EXPECT_TRUE(B12xPacked::accepts({.n = 64, .k = 16}));
  EXPECT_FALSE(B12xPacked::accepts({.n = 96, .k = 16}));
  EXPECT_FALSE(B12xPacked::accepts({.n = 64, .k = 24}));
  EXPECT_FALSE(B12xPacked::accepts({.n = 0, .k = 16}));
}

}  // namespace
}  // namespace fewbit
