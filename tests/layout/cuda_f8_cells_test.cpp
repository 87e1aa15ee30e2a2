// SPDX-License-Identifier: Apache-2.0
#include "layout/cuda_f8_cells.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "core/float_convert.hpp"
#include "layout/cuda_f8_pack.hpp"
#include "layout_properties.hpp"

namespace fewbit {
namespace {

using CudaF8Layouts =
    ::testing::Types<CudaF8CodePlane<0>, CudaF8CodePlane<5>, CudaF8CodePlane<7>, CudaF8CellScales,
                     CudaF8CodePlane<3, CudaMxF8Cells>, CudaMxF8Scales>;
INSTANTIATE_TYPED_TEST_SUITE_P(CudaF8Cells, LayoutTest, CudaF8Layouts);

static_assert(CudaF8CodePlane<7>::place({.n = 32, .k = 32}, 0, 0) == Place{.byte = 1, .bit = 7});
static_assert(CudaF8CodePlane<7>::place({.n = 32, .k = 32}, 8, 1) == Place{.byte = 3, .bit = 3});
static_assert(CudaF8CodePlane<0>::place({.n = 32, .k = 32}, 16, 4) ==
              Place{.byte = 512 + 8, .bit = 4});
static_assert(CudaF8CellScales::place({.n = 2, .k = 3}, 1, 2) ==
              Place{.byte = 2 * 1040 + 1028, .bit = 0});

// The kernels' operations give every code but NaN back as a bf16 of its value times 2^-120, at each
// of the four positions.
TEST(CudaF8Cells, AWordIsFourBf16) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t others = code * 0x9E3779B9U & ~(0xFFU << 8 * i);
      const std::uint32_t codes = others | code << 8 * i;
      const std::uint32_t word = cuda_f8_word(codes);
      const std::uint32_t pairs[2] = {word & 0x87F087F0U,
                                      (word << 4 & 0x80F080F0U) | (word >> 4 & 0x07000700U)};
      const auto half = static_cast<std::uint16_t>(pairs[i / 2] >> 16 * (i % 2));
      EXPECT_EQ(cuda_f8_nan(code << 8 * i), (code & 0x7FU) == 0x7FU);
      if ((code & 0x7FU) == 0x7FU) continue;
      ASSERT_EQ(bf16_to_f32(half) * 0x1p120F, f8_e4m3_to_f32(static_cast<std::uint8_t>(code)));
    }
  }
}

// The packer's words and scales are the closed form's, for sizes that end inside a unit, a cell and
// a block, and for a second half that begins inside a block.
TEST(CudaF8Cells, PackingGivesTheBytesOfTheClosedForm) {
  constexpr std::int64_t rows = 80;
  constexpr std::int64_t depth = 176;
  constexpr std::int64_t blocks = (depth + 127) / 128;
  const Dims half{.n = rows, .k = depth};
  std::vector<std::uint8_t> codes(2 * rows * depth);
  std::vector<float> scales(2 * blocks);
  std::mt19937 random(3);
  for (auto& code : codes) code = static_cast<std::uint8_t>(random());
  for (auto& scale : scales) scale = static_cast<float>(random() % 1000);
  const CudaF8Source from{.codes = {codes.data(), codes.data() + rows * depth},
                          .scales = {scales.data(), scales.data()},
                          .first_row = {0, rows},
                          .rows = rows,
                          .depth = depth};
  std::vector<std::byte> expected(static_cast<std::size_t>(CudaF8Cells::bytes(half)));
  const auto plane = [&]<int bit>(std::integral_constant<int, bit> /*of the codes*/) {
    pack<CudaF8CodePlane<bit>>(
        {.n = 2 * rows, .k = depth},
        [&](std::int64_t n, std::int64_t k) {
          return codes[static_cast<std::size_t>(n * depth + k)] >> bit & 1;
        },
        expected);
  };
  plane(std::integral_constant<int, 0>{});
  plane(std::integral_constant<int, 1>{});
  plane(std::integral_constant<int, 2>{});
  plane(std::integral_constant<int, 3>{});
  plane(std::integral_constant<int, 4>{});
  plane(std::integral_constant<int, 5>{});
  plane(std::integral_constant<int, 6>{});
  plane(std::integral_constant<int, 7>{});
  const std::int64_t units = CudaF8Cells::units(half);
  const std::int64_t cells = CudaF8Cells::cells(half);
  pack<CudaF8CellScales>(
      {.n = 2 * units, .k = cells},
      [&](std::int64_t unit, std::int64_t cell) {
        const std::int64_t row = unit % units * 16 + unit / units * rows;
        std::uint32_t bits = 0;
        std::memcpy(&bits, &scales[static_cast<std::size_t>(row / 128 * blocks + cell / 4)],
                    sizeof(bits));
        return bits;
      },
      expected);
  const std::byte* at = expected.data();
  for (std::int64_t unit = 0; unit < units; ++unit) {
    for (std::int64_t cell = 0; cell < cells; ++cell, at += CudaF8Cells::cell_bytes) {
      for (int word = 0; word < 256; ++word) {
        std::uint32_t bits = 0;
        std::memcpy(&bits, at + 4 * word, sizeof(bits));
        ASSERT_EQ(cuda_f8_word(cuda_f8_codes(from, unit, cell, word)), bits);
      }
      for (int h = 0; h < 2; ++h) {
        float scale = 0;
        std::memcpy(&scale, at + 1024 + 4 * h, sizeof(scale));
        ASSERT_EQ(cuda_f8_scale(from, unit, cell, h), scale);
      }
    }
  }
}

// MXFP8: a byte a row and cell.
TEST(CudaF8Cells, ScalesOfMxfp8AreThoseOfTheClosedForm) {
  constexpr std::int64_t rows = 24;
  constexpr std::int64_t depth = 96;
  std::vector<std::uint8_t> scales(2 * rows * (depth / 32));
  std::mt19937 random(4);
  for (auto& scale : scales) scale = static_cast<std::uint8_t>(random());
  const CudaF8Source from{.mx_scales = {scales.data(), scales.data() + scales.size() / 2},
                          .rows = rows,
                          .depth = depth};
  const Dims d{.n = 2 * rows, .k = depth / 32};
  std::vector<std::byte> expected(static_cast<std::size_t>(CudaMxF8Scales::bytes(d)));
  pack<CudaMxF8Scales>(
      d,
      [&](std::int64_t n, std::int64_t cell) {
        return scales[static_cast<std::size_t>(n * d.k + cell)];
      },
      expected);
  const std::byte* at = expected.data();
  for (std::int64_t unit = 0; unit < CudaMxF8Cells::units({.n = rows, .k = depth}); ++unit) {
    for (std::int64_t cell = 0; cell < d.k; ++cell, at += CudaMxF8Cells::cell_bytes) {
      for (int i = 0; i < 32; ++i) {
        ASSERT_EQ(cuda_mxf8_scale(from, unit, cell, i),
                  std::to_integer<std::uint8_t>(at[1024 + i]));
      }
    }
  }
}

}  // namespace
}  // namespace fewbit
