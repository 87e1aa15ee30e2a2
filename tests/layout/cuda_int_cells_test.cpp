// SPDX-License-Identifier: Apache-2.0
#include "layout/cuda_int_cells.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "core/float_convert.hpp"
#include "layout/cuda_int_pack.hpp"
#include "layout_properties.hpp"

namespace fewbit {
namespace {

using CudaIntLayouts = ::testing::Types<
    CudaIntCodes<4, 1, false>, CudaIntCodes<4, 4, true>, CudaIntCodes<8, 1, true>,
    CudaIntCodes<8, 4, false>, CudaIntHeader<4, 4, false, false>, CudaIntHeader<4, 1, true, false>,
    CudaIntHeader<4, 1, true, true>, CudaIntHeader<4, 4, true, true>,
    CudaIntHeader<8, 1, false, false>, CudaIntHeader<8, 4, true, true>, CudaIntCodes<2, 1, false>,
    CudaIntCodes<2, 2, false>, CudaIntCodes<2, 4, false>, CudaIntHeader<2, 2, false, false>,
    CudaNf3Plane<0>, CudaNf3Plane<1>, CudaNf3Plane<2>, CudaIntHeader<3, 1, false, false>>;
INSTANTIATE_TYPED_TEST_SUITE_P(CudaIntCells, LayoutTest, CudaIntLayouts);

// A quad of 128 k: 4.125 bits a weight with scales for all of it, 4.5 with scales for 32 k.
static_assert(CudaIntForm{.scale_cells = 4}.quad_bytes() == 2112);
static_assert(CudaIntForm{.scale_cells = 1}.quad_bytes() == 2304);
static_assert(CudaIntForm{.scale_cells = 4, .zeros = true}.quad_bytes() == 2144);
static_assert(CudaIntForm{.scale_cells = 1, .zeros = true}.quad_bytes() == 2432);
static_assert(CudaIntCodes<4, 4, false>::place({.n = 32, .k = 128}, 0, 0) ==
              Place{.byte = 64, .bit = 0});
static_assert(CudaIntCodes<4, 4, false>::place({.n = 32, .k = 128}, 8, 1) ==
              Place{.byte = 66, .bit = 4});
static_assert(CudaIntCodes<4, 4, false>::place({.n = 32, .k = 128}, 16, 4) ==
              Place{.byte = 64 + 12, .bit = 0});
static_assert(CudaIntCodes<4, 1, true>::place({.n = 32, .k = 128}, 0, 32) ==
              Place{.byte = 2 * 96 + 512, .bit = 0});
static_assert(CudaIntHeader<4, 1, true, true>::place({.n = 32, .k = 4}, 17, 2) ==
              Place{.byte = 2 * (96 + 512) + 64 + 6, .bit = 0});

// 2.125, 2.25 and 3.5 bits a weight.
static_assert(CudaIntForm{.bits = 2, .scale_cells = 4}.quad_bytes() == 1088);
static_assert(CudaIntForm{.bits = 2, .scale_cells = 2}.quad_bytes() == 1152);
static_assert(CudaIntForm{.bits = 3, .scale_cells = 1}.quad_bytes() == 1792);

static_assert(CudaIntForm{.bits = 8, .scale_cells = 4}.quad_bytes() == 4160);
static_assert(CudaIntForm{.bits = 8, .scale_cells = 1, .zeros = true}.quad_bytes() == 4480);
static_assert(CudaIntCodes<8, 4, false>::place({.n = 32, .k = 128}, 8, 1) ==
              Place{.byte = 64 + 3, .bit = 0});
static_assert(CudaIntCodes<8, 4, false>::place({.n = 32, .k = 128}, 16, 4) ==
              Place{.byte = 64 + 512 + 8, .bit = 0});

// The lower seven bits below the exponent of 128, less 128 or, where the sign is set, 256, as the
// kernels do it for two codes at once: the exact integer; and so it is less any zero point.
TEST(CudaIntCells, APairOfInt8IsTwoIntegers) {
  for (int code = -128; code < 128; ++code) {
    const std::uint32_t word = (static_cast<std::uint32_t>(code) & 255U) << 16 | 0x5A00U;
    const std::uint32_t lower = (word & 0x007F007FU) | 0x43004300U;
    const std::uint32_t taken = (word & 0x00800080U) | 0x43004300U;
    const float value = bf16_to_f32(static_cast<std::uint16_t>(lower >> 16)) -
                        bf16_to_f32(static_cast<std::uint16_t>(taken >> 16));
    ASSERT_EQ(value, static_cast<float>(code));
    for (int zero = -128; zero < 128; ++zero) {
      const auto exact = static_cast<float>(code - zero);
      ASSERT_EQ(bf16_to_f32(f32_to_bf16(exact)), exact);
    }
  }
}

// Shift and mask as the kernels do, below the exponent of 128, less 128 + zero: the exact integer.
TEST(CudaIntCells, AWordIsFourPairsOfIntegers) {
  for (std::uint32_t seed = 0; seed < 4096; ++seed) {
    const std::uint32_t word = seed * 2654435761U;
    for (int pair = 0; pair < 4; ++pair) {
      const std::uint32_t bits = ((word >> 4 * pair) & 0x000F000FU) | 0x43004300U;
      for (int position = 0; position < 2; ++position) {
        const auto half = static_cast<std::uint16_t>(bits >> (16 * position));
        const std::uint32_t code = word >> (4 * pair + 16 * position) & 15U;
        for (const int zero : {0, 1, 8, 16, 127}) {
          const float taken = bf16_to_f32(static_cast<std::uint16_t>(0x4300 + zero));
          ASSERT_EQ(bf16_to_f32(half) - taken, static_cast<float>(static_cast<int>(code) - zero));
        }
      }
    }
  }
}

// The packer's words and headers are the closed form's, for groups that the last k of a row don't
// fill and sizes that end inside a unit and a quad.
template <int bits, int scale_cells, bool zeros>
void expect_closed_form(std::int64_t rows, std::int64_t depth, std::int64_t group,
                        std::uint8_t flipped_bit) {
  constexpr CudaIntForm form{.bits = bits, .scale_cells = scale_cells, .zeros = zeros};
  CudaIntSource from{
      .rows = rows, .depth = depth, .group = group, .bits = bits, .flipped_bit = flipped_bit};
  const Dims d{.n = 2 * rows, .k = depth};
  const auto elements = static_cast<std::size_t>(rows * depth);
  const auto grid = static_cast<std::size_t>(rows * from.groups());
  std::vector<std::uint8_t> codes[2];
  std::vector<std::uint16_t> scales[2];
  std::vector<std::uint8_t> zero_points[2];
  std::mt19937 random(5);
  for (int m = 0; m < 2; ++m) {
    for (std::size_t i = 0; i < elements * bits / 8; ++i) {
      codes[m].push_back(static_cast<std::uint8_t>(random()));
    }
    for (std::size_t i = 0; i < grid; ++i) {
      scales[m].push_back(static_cast<std::uint16_t>(random()));
      zero_points[m].push_back(static_cast<std::uint8_t>(random() % 17));
    }
    from.codes[m] = codes[m].data();
    from.scales[m] = scales[m].data();
    from.zeros[m] = zero_points[m].data();
  }
  const auto row_of = [&](std::int64_t n) { return static_cast<std::size_t>(n % rows); };
  const auto group_at = [&](std::int64_t n, std::int64_t run) {
    const std::int64_t g = from.group_of(run * 32 * scale_cells);
    return row_of(n) * static_cast<std::size_t>(from.groups()) + static_cast<std::size_t>(g);
  };
  const auto bytes = static_cast<std::size_t>(form.bytes({.n = rows, .k = depth}));
  std::vector<std::byte> expected(bytes);
  // What lies past the matrix.
  const std::int64_t cells = 4 * CudaIntForm::quads({.n = rows, .k = depth});
  const std::int64_t unit_bytes = cells / 4 * form.quad_bytes();
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::int64_t within = static_cast<std::int64_t>(i) % unit_bytes % form.run_bytes();
    if (bits == 4 && within >= form.header_bytes()) expected[i] = std::byte{0x88};
    if (bits == 2 && within >= form.header_bytes()) expected[i] = std::byte{0x55};
    if (zeros && within >= 64 && within < 96) expected[i] = std::byte{from.past_zero()};
  }
  pack<CudaIntCodes<bits, scale_cells, zeros>>(
      d,
      [&](std::int64_t n, std::int64_t k) {
        const std::size_t i = row_of(n) * static_cast<std::size_t>(depth) + std::size_t(k);
        const std::uint8_t byte = codes[n / rows][i * bits / 8];
        if (bits == 8) return byte ^ flipped_bit;
        if (bits == 2) return byte >> i % 4 * 2 & 3;
        return (k % 2 == 0 ? byte & 15 : byte >> 4) ^ flipped_bit;
      },
      expected);
  const Dims runs{.n = 2 * rows, .k = (depth + 32 * scale_cells - 1) / (32 * scale_cells)};
  pack<CudaIntHeader<bits, scale_cells, zeros, false>>(
      runs, [&](std::int64_t n, std::int64_t run) { return scales[n / rows][group_at(n, run)]; },
      expected);
  if constexpr (zeros) {
    pack<CudaIntHeader<bits, scale_cells, zeros, true>>(
        runs,
        [&](std::int64_t n, std::int64_t run) { return zero_points[n / rows][group_at(n, run)]; },
        expected);
  }
  for (std::int64_t unit = 0; unit < CudaIntForm::units({.n = rows, .k = depth}); ++unit) {
    const std::byte* at = expected.data() + unit * unit_bytes;
    for (std::int64_t cell = 0; cell < cells; ++cell) {
      for (int word = 0; word < form.cell_bytes() / 4; ++word) {
        std::uint32_t stored = 0;
        std::memcpy(&stored, at + form.codes_at(cell) + 4 * word, sizeof(stored));
        ASSERT_EQ(cuda_int_word(from, unit, cell, word), stored) << unit << " " << cell;
      }
      if (cell % scale_cells != 0) continue;
      for (int i = 0; i < 32; ++i) {
        std::uint16_t scale = 0;
        std::memcpy(&scale, at + form.header_at(cell) + 2 * i, sizeof(scale));
        ASSERT_EQ(cuda_int_of_header(from, from.scales, unit, cell, i, std::uint16_t{0}), scale);
        if (!zeros) continue;
        ASSERT_EQ(cuda_int_of_header(from, from.zeros, unit, cell, i, from.past_zero()),
                  std::to_integer<std::uint8_t>(at[form.header_at(cell) + 64 + i]));
      }
    }
  }
}

TEST(CudaIntCells, PackingGivesTheBytesOfTheClosedForm) {
  expect_closed_form<4, 1, false>(16, 128, 32, 0);
  expect_closed_form<4, 1, true>(24, 208, 64, 8);
  expect_closed_form<4, 4, false>(40, 176, 128, 8);
  expect_closed_form<4, 4, true>(16, 320, 0, 0);
  expect_closed_form<8, 1, true>(24, 208, 64, 128);
  expect_closed_form<8, 4, false>(40, 176, 0, 0);
  expect_closed_form<2, 1, false>(24, 208, 96, 0);
  expect_closed_form<2, 2, false>(40, 176, 64, 0);
  expect_closed_form<2, 4, false>(16, 320, 128, 0);
}

// Of NF3: every bit of every stored code, in rows of three bytes for eight codes.
TEST(CudaIntCells, PackingOfNf3GivesTheBytesOfTheClosedForm) {
  constexpr CudaIntForm form{.bits = 3};
  CudaIntSource from{.rows = 24, .depth = 208, .group = 32, .bits = 3};
  const Dims d{.n = 48, .k = 208};
  std::vector<std::uint8_t> codes[2];
  std::vector<std::uint16_t> scales[2];
  std::mt19937 random(6);
  for (int m = 0; m < 2; ++m) {
    for (int i = 0; i < 24 * 78; ++i) codes[m].push_back(static_cast<std::uint8_t>(random()));
    for (int i = 0; i < 24 * 7; ++i) scales[m].push_back(static_cast<std::uint16_t>(random()));
    from.codes[m] = codes[m].data();
    from.scales[m] = scales[m].data();
  }
  const auto code_at = [&](std::int64_t n, std::int64_t k) {
    unsigned code = 0;
    for (int b = 0; b < 3; ++b) {
      const std::int64_t bit = n % 24 * 624 + 3 * k + b;
      code |= (codes[n / 24][static_cast<std::size_t>(bit / 8)] >> bit % 8 & 1U) << b;
    }
    return cuda_nf3_stored(static_cast<std::uint8_t>(code));
  };
  // Past the matrix code 0, stored as 7.
  std::vector<std::byte> expected(static_cast<std::size_t>(form.bytes({.n = 24, .k = 208})),
                                  std::byte{0xFF});
  const auto pack_plane = [&]<int bit>(std::integral_constant<int, bit> /*of a code*/) {
    pack<CudaNf3Plane<bit>>(
        d, [&](std::int64_t n, std::int64_t k) { return code_at(n, k) >> bit & 1; }, expected);
  };
  pack_plane(std::integral_constant<int, 0>());
  pack_plane(std::integral_constant<int, 1>());
  pack_plane(std::integral_constant<int, 2>());
  for (std::int64_t unit = 0; unit < 2; ++unit) {
    for (std::int64_t cell = 0; cell < 8; ++cell) {
      const std::byte* at = expected.data() + unit * 2 * form.quad_bytes() + form.codes_at(cell);
      for (int word = 0; word < form.cell_bytes() / 4; ++word) {
        std::uint32_t stored = 0;
        std::memcpy(&stored, at + 4 * word, sizeof(stored));
        ASSERT_EQ(cuda_int_word(from, unit, cell, word), stored) << unit << " " << cell;
      }
    }
  }
}

}  // namespace
}  // namespace fewbit
