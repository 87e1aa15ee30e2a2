// SPDX-License-Identifier: Apache-2.0
// Worked values of layouts that other engines' kernels read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/cpu_int4_blocks.hpp"
#include "layout/f4_transposed.hpp"
#include "layout/layout_properties.hpp"
#include "layout/pack.hpp"
#include "layout/prepare_trtllm.hpp"
#include "layout/prepare_xpu.hpp"
#include "layout/q2_blocks.hpp"
#include "layout/row_major.hpp"
#include "layout/swap_halves.hpp"
#include "layout/trtllm_blocks.hpp"
#include "layout/trtllm_rows.hpp"

namespace fewbit {
namespace {

using ::testing::HasSubstr;

using TrtllmLayouts = ::testing::Types<TrtllmCodes<4, Gating::ungated, TrtllmBlock::rows_16>,
                                       TrtllmCodes<4, Gating::gated, TrtllmBlock::rows_32>,
                                       TrtllmScales<8, Gating::gated, TrtllmBlock::rows_32>,
                                       TrtllmScales<16, Gating::ungated, TrtllmBlock::rows_16>,
                                       TrtllmBlocks<Gating::gated>, TrtllmBlocks<Gating::ungated>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Trtllm, LayoutTest, TrtllmLayouts);

using OtherLayouts = ::testing::Types<CpuInt4Blocks<32>, CpuInt4Blocks<128>, CpuInt4Groups<8>,
                                      CpuInt4Groups<32>, F4Transposed<1>, F4Transposed<16>,
                                      F4TransposedScales<16>, Q2Blocks<64>, Q2Blocks<128>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Others, LayoutTest, OtherLayouts);

TensorView view(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .device = {}};
}

std::vector<std::byte> counting(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 37 % 251);
  return bytes;
}

TEST(TrtllmRowsTest, TakeTheKnownRows) {
  const TrtllmRows plain{.rows = 128, .gating = Gating::ungated, .block = TrtllmBlock::rows_32};
  const TrtllmRows gated{.rows = 128, .gating = Gating::gated, .block = TrtllmBlock::rows_32};
  const std::vector<std::int64_t> want_plain = {0, 4, 8, 12, 16, 20, 24, 28, 1, 5};
  const std::vector<std::int64_t> want_gated = {0, 2, 4, 6, 8, 10, 12, 14, 64, 66};
  for (std::int64_t p = 0; p < 10; ++p) {
    EXPECT_EQ(plain.source(p), want_plain[static_cast<std::size_t>(p)]);
    EXPECT_EQ(gated.source(p), want_gated[static_cast<std::size_t>(p)]);
  }
  EXPECT_EQ(plain.source(100), 112);
  EXPECT_EQ(gated.source(100), 56);
  EXPECT_EQ(trtllm_block(128), TrtllmBlock::rows_32);
  EXPECT_EQ(trtllm_block(64), TrtllmBlock::rows_16);
}

// Row 3 of the shuffled order, k 600: block 2 of 256 codes.
TEST(TrtllmBlocksTest, PutsCodesIntoColumnsOf256) {
  using Blocks = TrtllmBlocks<Gating::ungated>;
  constexpr Dims d{.n = 128, .k = 768};
  const std::int64_t row = Blocks::rows(d).source(3);
  EXPECT_EQ(Blocks::place(d, row, 600), (Place{.byte = (2 * 128 + 3) * 128 + 44, .bit = 0}));
}

TEST(CpuInt4BlocksTest, PutsElement90Column25IntoBlock2) {
  using Blocks = CpuInt4Blocks<32>;
  constexpr Dims d{.n = 96, .k = 32};
  EXPECT_EQ(Blocks::block_bytes, 640);
  EXPECT_EQ(Blocks::place(d, 90, 25), (Place{.byte = 2 * 640 + 425, .bit = 4}));
  EXPECT_EQ(Blocks::sum_place(d, 90, 25), (Place{.byte = 2 * 640 + 512 + 26 * 4, .bit = 0}));
}

TEST(Q2BlocksTest, PutsElement2Column70IntoByte155) {
  constexpr Dims d{.n = 3, .k = 256};
  EXPECT_EQ(Q2Blocks<128>::block_bytes, 34);
  EXPECT_EQ(Q2Blocks<64>::block_bytes, 18);
  EXPECT_EQ(Q2Blocks<128>::place(d, 2, 70), (Place{.byte = 155, .bit = 4}));
  EXPECT_EQ(Q2Blocks<128>::scale_place(d, 2, 70), (Place{.byte = 136, .bit = 0}));
}

// Two matrices of 24 and 17 columns in one: the second begins at column 24, the stride is 48.
TEST(F4TransposedTest, MatricesFollowEachOtherAlongN) {
  using Wide = F4Transposed<16>;
  constexpr Dims both{.n = 41, .k = 6};
  EXPECT_EQ(Wide::stride(both), 48);
  EXPECT_EQ(Wide::place(both, 24 + 5, 3), (Place{.byte = 48 + 29, .bit = 4}));
  EXPECT_EQ(F4TransposedScales<16>::place({.n = 41, .k = 3}, 24 + 5, 2),
            (Place{.byte = 2 * 48 + 29, .bit = 0}));
}

// Scale groups that are no multiple of 4 are padded instead of refused.
TEST(PrepareTrtllmFp4Test, EveryRowAndScaleIsThere) {
  TrtllmFp4Input input;
  input.hidden_size = 128;
  input.intermediate_size = 80 * 4;
  const std::vector<std::byte> codes1 = counting(640 * 64);
  const std::vector<std::byte> scales1 = counting(640 * 8);
  const std::vector<std::byte> codes2 = counting(128 * 160);
  const std::vector<std::byte> scales2 = counting(128 * 20);
  input.gemm1 = {view(DType::u8, {1, 640, 64}, codes1), view(DType::f8_e4m3, {1, 640, 8}, scales1)};
  input.gemm2 = {view(DType::u8, {1, 128, 160}, codes2),
                 view(DType::f8_e4m3, {1, 128, 20}, scales2)};
  const auto result = prepare_trtllm_fp4(input);
  ASSERT_TRUE(result) << result.error().message();
  using Codes = TrtllmCodes<4, Gating::gated, TrtllmBlock::rows_32>;
  using Scales = TrtllmScales<8, Gating::gated, TrtllmBlock::rows_32>;
  const Dims d{.n = 640, .k = 128};
  const Dims grid{.n = 640, .k = 8};
  for (std::int64_t n = 0; n < d.n; ++n) {
    for (std::int64_t k = 0; k < d.k; ++k) {
      ASSERT_EQ(read_bits<4>(result->gemm1.codes.view.bytes, Codes::place(d, n, k)),
                read_bits<4>(codes1, RowMajor<4>::place(d, n, k)));
      ASSERT_EQ(read_bits<8>(result->gemm1.scales.view.bytes, Scales::place(grid, n, k / 16)),
                read_bits<8>(scales1, RowMajor<8>::place(grid, n, k / 16)));
    }
  }
  input.gemm2.scales.shape = {1, 128, 21};
  EXPECT_THAT(prepare_trtllm_fp4(input).error().message(),
              HasSubstr("gemm2 scales: shape [1, 128, 21], expected [1, 128, 20]"));
  input.intermediate_size = 96;
  EXPECT_EQ(prepare_trtllm_fp4(input).error().message(),
            "gemm1 codes: n x k is 192 x 128, expected multiples of 128 and 16");
}

// MXFP4: the same rows, scales of 32 k.
TEST(PrepareTrtllmFp4Test, Mxfp4HasScalesOf32) {
  TrtllmFp4Input input;
  input.group = 32;
  input.hidden_size = 128;
  input.intermediate_size = 96 * 4;
  const std::vector<std::byte> codes1 = counting(768 * 64);
  const std::vector<std::byte> scales1 = counting(768 * 4);
  const std::vector<std::byte> codes2 = counting(128 * 192);
  const std::vector<std::byte> scales2 = counting(128 * 12);
  input.gemm1 = {view(DType::u8, {1, 768, 64}, codes1), view(DType::f8_e8m0, {1, 768, 4}, scales1)};
  input.gemm2 = {view(DType::u8, {1, 128, 192}, codes2),
                 view(DType::f8_e8m0, {1, 128, 12}, scales2)};
  const auto result = prepare_trtllm_fp4(input);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->gemm1.scales.view.dtype, DType::f8_e8m0);
  using Codes = TrtllmCodes<4, Gating::gated, TrtllmBlock::rows_32>;
  using Scales = TrtllmScales<8, Gating::gated, TrtllmBlock::rows_32>;
  const Dims d{.n = 768, .k = 128};
  const Dims grid{.n = 768, .k = 4};
  for (std::int64_t n = 0; n < d.n; ++n) {
    for (std::int64_t k = 0; k < d.k; ++k) {
      ASSERT_EQ(read_bits<4>(result->gemm1.codes.view.bytes, Codes::place(d, n, k)),
                read_bits<4>(codes1, RowMajor<4>::place(d, n, k)));
      ASSERT_EQ(read_bits<8>(result->gemm1.scales.view.bytes, Scales::place(grid, n, k / 32)),
                read_bits<8>(scales1, RowMajor<8>::place(grid, n, k / 32)));
    }
  }
  input.group = 64;
  EXPECT_EQ(prepare_trtllm_fp4(input).error().message(), "group: 64, expected 16 or 32");
}

TEST(PrepareTrtllmMxint4Test, RefusesColumnsThatFillNoBlock) {
  TrtllmMxint4Input input;
  input.hidden_size = 128;
  input.intermediate_size = 256;
  const std::vector<std::byte> codes(512 * 64);
  input.gemm1 = {view(DType::i32, {1, 512, 16}, codes), view(DType::bf16, {1, 512, 4}, codes)};
  EXPECT_EQ(prepare_trtllm_mxint4(input).error().message(),
            "gemm1 codes: n x k is 512 x 128, expected multiples of 128 and 256");
}

TEST(PrepareXpuTest, CodesAndScalesBecomeRows) {
  const std::vector<std::byte> words = counting(2 * 4 * 6 * 4);
  const std::vector<std::byte> scales = counting(2 * 2 * 6 * 2);
  const XpuMatrix matrix{.words = view(DType::i32, {2, 4, 6}, words),
                         .scales = view(DType::bf16, {2, 2, 6}, scales)};
  const auto result = prepare_xpu(matrix, {.n = 6, .k = 32}, 16);
  ASSERT_TRUE(result) << result.error().message();
  // Expert 1, row 5, k 9: nibble 1 of word (1, 5).
  const std::size_t word = 24 + 6 + 5;
  EXPECT_EQ(std::to_integer<int>(result->codes.view.bytes[(6 + 5) * 16 + 4]) >> 4,
            std::to_integer<int>(words[word * 4]) >> 4);
  EXPECT_EQ(result->scales.view.bytes[((6 + 5) * 2 + 1) * 2], scales[(12 + 6 + 5) * 2]);
  EXPECT_EQ(prepare_xpu(matrix, {.n = 6, .k = 32}, 12).error().message(),
            "words: k is 32, expected a multiple of 8 and of 12, the group size");
  EXPECT_THAT(prepare_xpu(matrix, {.n = 7, .k = 32}, 16).error().message(),
              HasSubstr("shape [2, 4, 6], expected [2, 4, 7]"));
}

TEST(SwapHalvesTest, TwiceIsNothingAndOddExtentsAreRefused) {
  const std::vector<std::byte> bytes = counting(2 * 6 * 5 * 2);
  const TensorView tensor = view(DType::f16, {2, 6, 5}, bytes);
  for (const std::int64_t dim : {0, 1, -2, -3}) {
    const auto once = swap_halves(tensor, dim);
    ASSERT_TRUE(once);
    EXPECT_FALSE(std::ranges::equal(once->view.bytes, bytes));
    const auto twice = swap_halves(once->view, dim);
    ASSERT_TRUE(twice);
    EXPECT_TRUE(std::ranges::equal(twice->view.bytes, bytes));
  }
  EXPECT_EQ(swap_halves(tensor, 2).error().message(),
            "extent 5 of dimension 2 has no halves, expected an even one");
  EXPECT_EQ(swap_halves(tensor, 3).error().message(), "dimension 3 of shape [2, 6, 5]");
  EXPECT_EQ(reorder_w1w3_to_w3w1(tensor, view(DType::u8, {2, 4, 5}, {}), 1).error().message(),
            "dimension 1 of the scale has extent 4, expected that of the weight, 6");
}

}  // namespace
}  // namespace fewbit
