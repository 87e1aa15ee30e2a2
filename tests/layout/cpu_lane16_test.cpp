// SPDX-License-Identifier: Apache-2.0
#include "layout/cpu_lane16.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "layout/cpu_lane16_pack.hpp"
#include "layout/pack.hpp"

namespace fewbit {
namespace {

// Lane r of the vector at k = 8 j holds the codes of row r, ascending k in ascending nibbles.
static_assert(CpuF4Lane16::place({.n = 32, .k = 32}, 0, 0) == Place{.byte = 0, .bit = 0});
static_assert(CpuF4Lane16::place({.n = 32, .k = 32}, 0, 7) == Place{.byte = 3, .bit = 4});
static_assert(CpuF4Lane16::place({.n = 32, .k = 32}, 15, 0) == Place{.byte = 60, .bit = 0});
static_assert(CpuF4Lane16::place({.n = 32, .k = 32}, 0, 8) == Place{.byte = 64, .bit = 0});
static_assert(CpuF4Lane16::place({.n = 32, .k = 32}, 17, 0) == Place{.byte = 260, .bit = 0});
static_assert(CpuF4Lane16Scales::place({.n = 32, .k = 2}, 3, 1) == Place{.byte = 19, .bit = 0});
static_assert(!CpuF4Lane16::accepts({.n = 16, .k = 24}));

static_assert(CpuByteLane16::place({.n = 32, .k = 32}, 3, 2) == Place{.byte = 35, .bit = 0});
static_assert(CpuByteLane16::place({.n = 32, .k = 32}, 17, 1) == Place{.byte = 529, .bit = 0});
// 16 k of a row are one word of 2-bit codes; of 3-bit codes a word of 32 bits and one of 16.
static_assert(CpuPairLane16::place({.n = 32, .k = 32}, 3, 5) == Place{.byte = 13, .bit = 2});
static_assert(CpuPairLane16::place({.n = 32, .k = 32}, 17, 16) == Place{.byte = 196, .bit = 0});
static_assert(CpuTripleLane16::of_codes({.n = 32, .k = 32}).k == 6);
static_assert(CpuTripleLane16::place({.n = 32, .k = 6}, 3, 1) == Place{.byte = 14, .bit = 0});
static_assert(CpuTripleLane16::place({.n = 32, .k = 6}, 3, 2) == Place{.byte = 70, .bit = 0});
static_assert(CpuTripleLane16::place({.n = 32, .k = 6}, 17, 3) == Place{.byte = 292, .bit = 0});
static_assert(CpuLane16Groups<16>::place({.n = 32, .k = 2}, 17, 1) == Place{.byte = 98, .bit = 0});

std::vector<std::uint8_t> random_source(std::int64_t bytes) {
  std::mt19937 random(7);
  std::vector<std::uint8_t> source(static_cast<std::size_t>(1 + bytes));
  for (auto& byte : source) byte = static_cast<std::uint8_t>(random());
  return source;
}

// The packer against the closed form, from unaligned memory, over a dirty buffer.
template <Layout L, class Pack>
void expect_bytes_of_closed_form(Dims d, const Pack& pack_fast,
                                 std::optional<Dims> codes = std::nullopt,
                                 int code_bits = L::bits) {
  const std::vector<std::uint8_t> source = random_source(d.n * d.k * L::bits / 8);
  const auto read = [&](std::int64_t n, std::int64_t k) {
    const std::int64_t bit = (n * d.k + k) * L::bits;
    std::uint64_t code = 0;
    std::memcpy(&code, &source[static_cast<std::size_t>(1 + bit / 8)], (L::bits + 7) / 8);
    return L::bits < 8 ? code >> (bit % 8) & ((1U << L::bits % 8) - 1U) : code;
  };
  std::vector<std::byte> expected(static_cast<std::size_t>(L::bytes(d)));
  pack<L>(d, read, expected);
  std::vector<std::byte> got(expected.size(), std::byte{0xa5});
  pack_fast(code_bits, codes.value_or(d), source.data() + 1,
            reinterpret_cast<std::uint8_t*>(got.data()));
  EXPECT_EQ(got, expected) << L::bits << " bits, " << d.n << " x " << d.k;
}

void pack_codes(int bits, Dims dims, const std::uint8_t* in, std::uint8_t* out) {
  pack_cpu_lane16_codes(bits, dims, in, out);
}

class CpuLane16PackTest : public ::testing::TestWithParam<Dims> {};

TEST_P(CpuLane16PackTest, FastPackersGiveTheBytesOfTheClosedForm) {
  const Dims d = GetParam();
  expect_bytes_of_closed_form<CpuF4Lane16>(d, pack_codes);
  expect_bytes_of_closed_form<CpuByteLane16>(d, pack_codes);
  expect_bytes_of_closed_form<CpuPairLane16>(d, pack_codes);
  expect_bytes_of_closed_form<CpuTripleLane16>(CpuTripleLane16::of_codes(d), pack_codes, d, 3);
  for (const std::int64_t group : {16, 48}) {
    const Dims grid{.n = d.n, .k = ceil_div(d.k, group)};
    expect_bytes_of_closed_form<CpuLane16Groups<8>>(grid, pack_cpu_lane16_groups);
    expect_bytes_of_closed_form<CpuLane16Groups<16>>(grid, pack_cpu_lane16_groups);
    expect_bytes_of_closed_form<CpuLane16Groups<32>>(grid, pack_cpu_lane16_groups);
  }
}

// Rows past the last one, in every width of codes.
TEST(CpuLane16Pack, PaddingRowsHoldTheGivenByte) {
  const std::vector<std::uint8_t> source(17 * 32);
  for (const int bits : {2, 3, 4, 8}) {
    std::vector<std::uint8_t> packed(static_cast<std::size_t>(32 * 32 * bits / 8), 0xa5);
    pack_cpu_lane16_codes(bits, {.n = 17, .k = 32}, source.data(), packed.data(), 0x55);
    const auto padding = std::ranges::count(packed, 0x55);
    EXPECT_EQ(padding, 15 * 32 * bits / 8) << bits << " bits";
    EXPECT_EQ(std::ranges::count(packed, 0), 17 * 32 * bits / 8) << bits << " bits";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, CpuLane16PackTest,
                         ::testing::Values(Dims{1, 16}, Dims{16, 16}, Dims{17, 48}, Dims{80, 464},
                                           Dims{160, 32}, Dims{33, 2688}));

}  // namespace
}  // namespace fewbit
