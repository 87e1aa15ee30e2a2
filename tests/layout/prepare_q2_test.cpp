// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_q2.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "layout/backward_executor.hpp"
#include "layout/pack.hpp"
#include "layout/q2_blocks.hpp"
#include "layout/row_major.hpp"

namespace fewbit {
namespace {

using ::fewbit::testing::BackwardExecutor;

struct Example {
  Dims dims;
  std::int64_t group;
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;

  Example(Dims d, std::int64_t group_size, std::mt19937_64& random)
      : dims(d),
        group(group_size),
        codes(static_cast<std::size_t>(d.n * d.k / 4)),
        scales(static_cast<std::size_t>(d.n * d.k / group_size * 2)) {
    for (auto& byte : codes) byte = static_cast<std::byte>(random());
    for (auto& byte : scales) byte = static_cast<std::byte>(random());
  }
  Q2Rows rows() const {
    return {
        .codes = {.dtype = DType::u8, .shape = {dims.n, dims.k / 4}, .bytes = codes, .device = {}},
        .scales = {
            .dtype = DType::f16, .shape = {dims.n, dims.k / group}, .bytes = scales, .device = {}}};
  }
};

template <std::int64_t group>
void expect_places(const Example& example) {
  using Blocks = Q2Blocks<group>;
  BackwardExecutor executor(3);
  const Dims d = example.dims;
  const auto packed = pack_q2(example.rows(), d, group, executor);
  ASSERT_TRUE(packed) << packed.error().message();
  std::vector<std::byte> expected(static_cast<std::size_t>(Blocks::bytes(d)));
  pack<Blocks>(
      d,
      [&](std::int64_t n, std::int64_t k) {
        return read_bits<2>(example.codes, RowMajor<2>::place(d, n, k));
      },
      expected);
  for (std::int64_t n = 0; n < d.n; ++n) {
    for (std::int64_t k = 0; k < d.k; k += group) {
      const Place from{.byte = (n * (d.k / group) + k / group) * 2, .bit = 0};
      write_bits<16>(expected, Blocks::scale_place(d, n, k), read_bits<16>(example.scales, from));
    }
  }
  ASSERT_TRUE(std::ranges::equal(packed->view.bytes, expected)) << d.n << " x " << d.k;
  const auto back = unpack_q2(packed->view, d, group, executor);
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_TRUE(std::ranges::equal(back->codes.view.bytes, example.codes));
  EXPECT_TRUE(std::ranges::equal(back->scales.view.bytes, example.scales));
}

TEST(PackQ2Test, GivesThePlacesOfTheClosedFormAndComesBack) {
  std::mt19937_64 random(9);
  for (int i = 0; i < 1000; ++i) {
    const std::int64_t group = random() % 2 == 0 ? 64 : 128;
    const Dims d{.n = static_cast<std::int64_t>(1 + random() % 9),
                 .k = group * static_cast<std::int64_t>(1 + random() % 5)};
    const Example example(d, group, random);
    group == 64 ? expect_places<64>(example) : expect_places<128>(example);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(PackQ2Test, RefusesWithNumbers) {
  std::mt19937_64 random(10);
  const Example example({.n = 2, .k = 128}, 64, random);
  EXPECT_EQ(pack_q2(example.rows(), {.n = 2, .k = 96}, 64).error().message(),
            "k: 96, expected a multiple of the group, 64");
  EXPECT_EQ(pack_q2(example.rows(), {.n = 2, .k = 128}, 32).error().message(),
            "group: 32, expected 64 or 128");
  std::vector<std::byte> small(3);
  EXPECT_EQ(
      pack_q2(example.rows(), {.n = 2, .k = 128}, 64, small, serial_executor()).error().message(),
      "result: 3 bytes, expected 72");
  EXPECT_EQ(pack_q2(example.rows(), {.n = 2, .k = 128}, 128).error().message(),
            "scales: shape [2, 2], expected [2, 1]");
}

}  // namespace
}  // namespace fewbit
