// SPDX-License-Identifier: Apache-2.0
#include "layout/cuda_f4_cells.hpp"

#include <gtest/gtest.h>

#include "core/float_convert.hpp"
#include "layout_properties.hpp"

namespace fewbit {
namespace {

using CudaF4Layouts =
    ::testing::Types<CudaF4CodePlane<16, 0>, CudaF4CodePlane<16, 3>, CudaF4CodePlane<32, 2>,
                     CudaF4CellScales<16>, CudaF4CellScales<32>>;
INSTANTIATE_TYPED_TEST_SUITE_P(CudaF4Cells, LayoutTest, CudaF4Layouts);

// A cell of e4m3 scales is 576 bytes; row 0's first code is in word 0, row 8's in the same word,
// the second half's two words later.
static_assert(CudaF4Cells<16>::cell_bytes == 576);
static_assert(CudaF4Cells<32>::cell_bytes == 544);
static_assert(CudaF4CodePlane<16, 3>::place({.n = 32, .k = 32}, 0, 0) ==
              Place{.byte = 1, .bit = 7});
static_assert(CudaF4CodePlane<16, 3>::place({.n = 32, .k = 32}, 8, 0) ==
              Place{.byte = 1, .bit = 1});
static_assert(CudaF4CodePlane<16, 0>::place({.n = 32, .k = 32}, 16, 0) ==
              Place{.byte = 8, .bit = 6});
static_assert(CudaF4CellScales<16>::place({.n = 32, .k = 2}, 0, 1) == Place{.byte = 516, .bit = 0});
static_assert(CudaF4CellScales<16>::place({.n = 32, .k = 2}, 17, 0) ==
              Place{.byte = 522, .bit = 0});
static_assert(!CudaF4CodePlane<16, 0>::accepts({.n = 31, .k = 32}));
static_assert(!CudaF4CodePlane<32, 0>::accepts({.n = 32, .k = 48}));

std::uint32_t rotate_right(std::uint32_t word, int by) { return word >> by | word << (32 - by); }

// The four planes together fill a word, and the kernels' nine operations give every code back as a
// bf16 of its value times 2^-126.
TEST(CudaF4Cells, AWordIsFourPairsOfBf16) {
  for (std::uint32_t seed = 0; seed < 4096; ++seed) {
    std::uint8_t codes[4][2];
    std::uint32_t word = 0;
    for (int pair = 0; pair < 4; ++pair) {
      for (int position = 0; position < 2; ++position) {
        const std::uint32_t mixed = (seed * 2654435761U) >> (4 * pair + 2 * position);
        codes[pair][position] = static_cast<std::uint8_t>((mixed ^ seed >> 8) & 15);
        const std::uint32_t bits =
            CudaF4Cells<16>::code_bits(codes[pair][position], pair, position);
        ASSERT_EQ(word & bits, 0U);
        word |= bits;
      }
    }
    const std::uint32_t pairs[4] = {
        word & 0x81C081C0U, word << 6 & 0x81C081C0U, rotate_right(word, 4) & 0x81C081C0U,
        (rotate_right(word, 6) & 0x81808180U) | (word << 2 & 0x00400040U)};
    for (int pair = 0; pair < 4; ++pair) {
      for (int position = 0; position < 2; ++position) {
        const auto half = static_cast<std::uint16_t>(pairs[pair] >> (16 * position));
        ASSERT_EQ(bf16_to_f32(half) * 0x1p126F, f4_e2m1_to_f32(codes[pair][position]));
      }
    }
  }
}

// Code times scale as the kernel reads them is code times scale, for every pair of bytes but NaN.
TEST(CudaF4Cells, StoredE4m3ScalesKeepEveryProduct) {
  using Cells = CudaF4Cells<16>;
  for (int scale = 0; scale < 256; ++scale) {
    if ((scale & 0x7F) == 0x7F) continue;
    const auto byte = static_cast<std::uint8_t>(scale);
    const auto bf16 = static_cast<std::uint16_t>(Cells::stored_scale(byte) * 16 + 0x7100);
    for (std::uint8_t code = 0; code < 16; ++code) {
      const float weight = f4_e2m1_to_f32(Cells::stored_code(code, byte)) * 0x1p-126F;
      const float product = weight * bf16_to_f32(bf16);
      ASSERT_EQ(product * 0x1p7F, f4_e2m1_to_f32(code) * f8_e4m3_to_f32(byte))
          << "scale " << scale << " code " << int(code);
      ASSERT_EQ(bf16_to_f32(f32_to_bf16(product)), product) << "the product is exact in bf16";
    }
  }
}

}  // namespace
}  // namespace fewbit
