// SPDX-License-Identifier: Apache-2.0
#include "layout/cpu_f4_lane16.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "layout/cpu_f4_lane16_pack.hpp"
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

class CpuF4Lane16PackTest : public ::testing::TestWithParam<Dims> {};

// The fast packer against the closed form, from unaligned memory, over dirty buffers.
TEST_P(CpuF4Lane16PackTest, FastPackerGivesTheBytesOfTheClosedForm) {
  const Dims d = GetParam();
  const Dims grid{.n = d.n, .k = d.k / 16};
  std::mt19937 random(7);
  std::vector<std::uint8_t> source(static_cast<std::size_t>(1 + d.n * d.k / 2 + d.n * grid.k));
  for (auto& byte : source) byte = static_cast<std::uint8_t>(random());
  const std::uint8_t* codes = source.data() + 1;
  const std::uint8_t* scales = codes + d.n * d.k / 2;

  std::vector<std::byte> expected_codes(static_cast<std::size_t>(CpuF4Lane16::bytes(d)));
  std::vector<std::byte> expected_scales(static_cast<std::size_t>(CpuF4Lane16Scales::bytes(grid)));
  pack<CpuF4Lane16>(
      d,
      [&](std::int64_t n, std::int64_t k) {
        return codes[n * d.k / 2 + k / 2] >> (k % 2 * 4) & 15;
      },
      expected_codes);
  pack<CpuF4Lane16Scales>(
      grid, [&](std::int64_t n, std::int64_t k) { return scales[n * grid.k + k]; },
      expected_scales);

  std::vector<std::byte> got_codes(expected_codes.size(), std::byte{0xa5});
  std::vector<std::byte> got_scales(expected_scales.size(), std::byte{0xa5});
  pack_cpu_f4_lane16({.codes = codes, .scales = scales, .dims = d},
                     reinterpret_cast<std::uint8_t*>(got_codes.data()),
                     reinterpret_cast<std::uint8_t*>(got_scales.data()));
  EXPECT_EQ(got_codes, expected_codes);
  EXPECT_EQ(got_scales, expected_scales);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CpuF4Lane16PackTest,
                         ::testing::Values(Dims{1, 16}, Dims{16, 16}, Dims{17, 48}, Dims{80, 464},
                                           Dims{160, 32}, Dims{33, 2688}));

}  // namespace
}  // namespace fewbit
