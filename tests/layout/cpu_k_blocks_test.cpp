// SPDX-License-Identifier: Apache-2.0
#include "layout/cpu_k_blocks.hpp"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "canonical/gguf_blocks.hpp"
#include "layout/layout_properties.hpp"

namespace fewbit {
namespace {

using KPlanes = ::testing::Types<CpuQ4kCodes, CpuQ6kLow, CpuQ6kHigh>;
INSTANTIATE_TYPED_TEST_SUITE_P(KBlocks, LayoutTest, KPlanes);

// Scales of 16 rows side by side, f16 and 6-bit words; codes four bytes of a row at a time.
static_assert(CpuBlockLane16<Q4kBlock>::byte({.n = 32, .k = 512}, 0, 0, 1) == 1);
static_assert(CpuBlockLane16<Q4kBlock>::byte({.n = 32, .k = 512}, 3, 0, 2) == 38);
static_assert(CpuBlockLane16<Q4kBlock>::byte({.n = 32, .k = 512}, 3, 0, 4) == 76);
static_assert(CpuQ4kCodes::place({.n = 32, .k = 512}, 3, 37) == Place{.byte = 333, .bit = 4});
static_assert(CpuQ4kCodes::place({.n = 32, .k = 512}, 17, 256) == Place{.byte = 7172, .bit = 0});
static_assert(CpuQ6kLow::place({.n = 16, .k = 256}, 1, 66) == Place{.byte = 6, .bit = 4});
static_assert(CpuQ6kHigh::place({.n = 16, .k = 256}, 1, 130) == Place{.byte = 2566, .bit = 0});
static_assert(CpuBlockLane16<Q6kBlock>::byte({.n = 16, .k = 256}, 5, 0, 193) == 3093);
static_assert(CpuBlockLane16<Q6kBlock>::byte({.n = 16, .k = 256}, 5, 0, 209) == 3339);

// Every byte of every block has a place of its own, and its origin is told from there.
template <class Block>
void expect_bijection(Dims d) {
  using Lanes = CpuBlockLane16<Block>;
  std::set<std::int64_t> taken;
  for (std::int64_t n = 0; n < d.n; ++n) {
    for (std::int64_t k = 0; k < d.k; k += 256) {
      for (std::int64_t i = 0; i < Block::bytes; ++i) {
        const std::int64_t at = Lanes::byte(d, n, k, i);
        ASSERT_TRUE(taken.insert(at).second) << n << " " << k << " " << i;
        const auto origin = Lanes::origin(d, at);
        ASSERT_EQ(origin.first, (Element{.n = n, .k = k}));
        ASSERT_EQ(origin.byte, i);
      }
    }
  }
  EXPECT_EQ(std::ssize(taken), Lanes::bytes(d) / (ceil_div(d.n, std::int64_t{16}) * 16) * d.n);
  EXPECT_LT(*taken.rbegin(), Lanes::bytes(d));
}

TEST(CpuKBlocks, EveryByteHasAPlaceOfItsOwn) {
  for (const Dims d : {Dims{1, 256}, Dims{16, 512}, Dims{35, 768}}) {
    expect_bijection<Q4kBlock>(d);
    expect_bijection<Q6kBlock>(d);
  }
}

using Move = void (*)(Dims, const std::uint8_t*, std::uint8_t*);

template <class Block>
void expect_packed(Dims d, Move pack, Move unpack) {
  using Lanes = CpuBlockLane16<Block>;
  const std::int64_t row_bytes = d.k / 256 * Block::bytes;
  std::mt19937 random(3);
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(1 + d.n * row_bytes));
  for (auto& byte : rows) byte = static_cast<std::uint8_t>(random());
  std::vector<std::uint8_t> want(static_cast<std::size_t>(Lanes::bytes(d)));
  for (std::int64_t n = 0; n < d.n; ++n) {
    for (std::int64_t i = 0; i < row_bytes; ++i) {
      const std::int64_t at = Lanes::byte(d, n, i / Block::bytes * 256, i % Block::bytes);
      want[static_cast<std::size_t>(at)] = rows[static_cast<std::size_t>(1 + n * row_bytes + i)];
    }
  }
  std::vector<std::uint8_t> got(want.size(), 0xa5);
  pack(d, rows.data() + 1, got.data());
  EXPECT_EQ(got, want) << d.n << " x " << d.k;
  std::vector<std::uint8_t> back(rows.size(), rows[0]);
  unpack(d, got.data(), back.data() + 1);
  EXPECT_EQ(back, rows) << d.n << " x " << d.k;
}

TEST(CpuKBlocks, PackersFollowTheClosedFormAndBack) {
  for (const Dims d : {Dims{1, 256}, Dims{16, 256}, Dims{48, 768}, Dims{83, 512}}) {
    expect_packed<Q4kBlock>(d, pack_cpu_q4_k, unpack_cpu_q4_k);
    expect_packed<Q6kBlock>(d, pack_cpu_q6_k, unpack_cpu_q6_k);
  }
}

// A block with scales of 1 and no minima decodes to its codes: the planes say which bits they are.
TEST(CpuKBlocks, PlanesAreTheCodesThatBlocksDecodeTo) {
  std::mt19937 random(4);
  std::vector<std::uint8_t> q4(144);
  std::vector<std::uint8_t> q6(210);
  for (auto& byte : q4) byte = static_cast<std::uint8_t>(random());
  for (auto& byte : q6) byte = static_cast<std::uint8_t>(random());
  const std::vector<std::uint8_t> head{0, 0x3c, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1};
  std::ranges::copy(head, q4.begin());
  std::fill(q6.begin() + 192, q6.begin() + 208, std::uint8_t{1});
  q6[208] = 0;
  q6[209] = 0x3c;
  const Dims one{.n = 1, .k = 256};
  std::vector<std::byte> packed4(16 * 144);
  std::vector<std::byte> packed6(16 * 210);
  pack_cpu_q4_k(one, q4.data(), reinterpret_cast<std::uint8_t*>(packed4.data()));
  pack_cpu_q6_k(one, q6.data(), reinterpret_cast<std::uint8_t*>(packed6.data()));
  std::vector<float> want4(256);
  std::vector<float> want6(256);
  ASSERT_TRUE(decode_gguf_blocks(*find_gguf_type("Q4_K"), std::as_bytes(std::span(q4)), want4));
  ASSERT_TRUE(decode_gguf_blocks(*find_gguf_type("Q6_K"), std::as_bytes(std::span(q6)), want6));
  for (std::int64_t k = 0; k < 256; ++k) {
    const auto at = static_cast<std::size_t>(k);
    EXPECT_EQ(static_cast<float>(read_bits<4>(packed4, CpuQ4kCodes::place(one, 0, k))), want4[at]);
    const std::uint64_t code = read_bits<4>(packed6, CpuQ6kLow::place(one, 0, k)) |
                               read_bits<2>(packed6, CpuQ6kHigh::place(one, 0, k)) << 4;
    EXPECT_EQ(static_cast<float>(code) - 32, want6[at]);
  }
}

}  // namespace
}  // namespace fewbit
