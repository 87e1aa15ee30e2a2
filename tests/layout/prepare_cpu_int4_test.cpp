// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_cpu_int4.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/float_convert.hpp"
#include "layout/awq_words.hpp"
#include "layout/column_words.hpp"
#include "layout/cpu_int4_blocks.hpp"
#include "layout/gptq_words.hpp"
#include "layout/pack.hpp"
#include "layout/row_major.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t experts = 2;
constexpr Dims dims{.n = 64, .k = 96};
constexpr Dims groups{.n = 64, .k = 3};

std::int64_t code(std::int64_t e, std::int64_t n, std::int64_t k) {
  return (e + n * 3 + k * 5 + n * k) & 15;
}
std::int64_t zero(std::int64_t e, std::int64_t n, std::int64_t g) {
  return (e + n + g * 7) % 15 + 1;
}

TensorView view(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .device = {}};
}

// Two experts in one of the orders; stored_zero: what the words hold for zero 0.
template <class Words, class ZeroWords>
struct Source {
  std::vector<std::byte> words;
  std::vector<std::byte> zeros;
  std::vector<std::uint16_t> scales;

  explicit Source(std::int64_t stored_zero)
      : words(static_cast<std::size_t>(experts * Words::bytes(dims))),
        zeros(static_cast<std::size_t>(experts * ZeroWords::bytes(groups))) {
    for (std::int64_t e = 0; e < experts; ++e) {
      pack<Words>(
          dims, [&](std::int64_t n, std::int64_t k) { return code(e, n, k); },
          std::span(words).subspan(static_cast<std::size_t>(e * Words::bytes(dims))));
      pack<ZeroWords>(
          groups, [&](std::int64_t n, std::int64_t g) { return zero(e, n, g) + stored_zero; },
          std::span(zeros).subspan(static_cast<std::size_t>(e * ZeroWords::bytes(groups))));
      for (std::int64_t i = 0; i < groups.n * groups.k; ++i) {
        scales.push_back(f32_to_bf16(static_cast<float>(e * 1000 + i)));
      }
    }
  }
  TensorView scale_view() const {
    return view(DType::bf16, {experts, groups.k, groups.n}, std::as_bytes(std::span(scales)));
  }
};

struct Found {
  const CpuInt4Result& result;
  std::int64_t expert;
  std::span<const std::byte> of(const Tensor& tensor) const {
    const auto bytes = tensor.view.bytes;
    return bytes.subspan(static_cast<std::size_t>(expert) * bytes.size() / experts,
                         bytes.size() / experts);
  }
};

// 96 columns in groups of 32, zero points from the words or all 8.
void expect_weights(const CpuInt4Result& result, bool with_zeros) {
  using Blocks = CpuInt4Blocks<32>;
  for (std::int64_t e = 0; e < experts; ++e) {
    const Found found{result, e};
    for (std::int64_t n = 0; n < dims.n; ++n) {
      for (std::int64_t g = 0; g < groups.k; ++g) {
        const std::int64_t z = with_zeros ? zero(e, n, g) : 8;
        std::int64_t sum = 0;
        for (std::int64_t k = 32 * g; k < 32 * g + 32; ++k) {
          sum += code(e, n, k) - z;
          ASSERT_EQ(read_bits<4>(found.of(result.blocks), Blocks::place(dims, n, k)),
                    static_cast<std::uint64_t>(code(e, n, k)));
        }
        const auto got = static_cast<std::int32_t>(
            read_bits<32>(found.of(result.blocks), Blocks::sum_place(dims, n, 32 * g)));
        ASSERT_EQ(got, sum) << n << " " << g;
        ASSERT_EQ(read_bits<8>(found.of(result.zeros), CpuInt4Groups<8>::place(groups, n, g)),
                  static_cast<std::uint64_t>(z));
        const auto scale = static_cast<std::uint32_t>(
            read_bits<32>(found.of(result.scales), CpuInt4Groups<32>::place(groups, n, g)));
        ASSERT_EQ(__builtin_bit_cast(float, scale),
                  bf16_to_f32(f32_to_bf16(static_cast<float>(e * 1000 + g * groups.n + n))));
      }
    }
  }
}

TEST(PrepareCpuInt4Test, CodesSumsScalesAndZeroPointsAreThoseOfGptqWords) {
  const Source<GptqWords<4>, ColumnWords<4>> source(-1);
  CpuInt4Matrix matrix{.source = WordSource::gptq,
                       .words = view(DType::i32, {experts, 12, 64}, source.words),
                       .scales = source.scale_view(),
                       .zeros = view(DType::i32, {experts, 3, 8}, source.zeros)};
  const auto result = prepare_cpu_int4(matrix, dims, 32);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->blocks.view.shape, (Shape{experts, 2, 3, 640}));
  expect_weights(*result, true);
  matrix.zeros.reset();
  const auto symmetric = prepare_cpu_int4(matrix, dims, 32);
  ASSERT_TRUE(symmetric);
  expect_weights(*symmetric, false);
}

// One expert from rows, in two parts, whose codes are from 0 or have a sign.
TEST(PrepareCpuInt4Test, RowsGiveTheBytesOfWords) {
  const Source<AwqWords<4>, AwqWords<4>> source(0);
  std::vector<std::int8_t> zeros;
  for (std::int64_t n = 0; n < dims.n; ++n) {
    for (std::int64_t g = 0; g < groups.k; ++g) {
      zeros.push_back(static_cast<std::int8_t>(zero(0, n, g)));
    }
  }
  const auto bytes = [](std::span<const std::byte> all) { return all.first(all.size() / 2); };
  for (const bool with_zeros : {false, true}) {
    CpuInt4Matrix matrix{.source = WordSource::awq,
                         .words = view(DType::i32, {1, 96, 8}, bytes(source.words)),
                         .scales = view(DType::bf16, {1, groups.k, groups.n},
                                        bytes(std::as_bytes(std::span(source.scales)))),
                         .zeros = view(DType::i32, {1, 3, 8}, bytes(source.zeros))};
    if (!with_zeros) matrix.zeros.reset();
    const auto want = prepare_cpu_int4(matrix, dims, 32);
    ASSERT_TRUE(want) << want.error().message();
    const auto same = [](const Tensor& tensor, const std::vector<std::byte>& got) {
      return std::ranges::equal(tensor.view.bytes, got);
    };
    for (const bool signed_codes : {false, true}) {
      std::vector<std::byte> rows(static_cast<std::size_t>(RowMajor<4>::bytes(dims)));
      pack<RowMajor<4>>(
          dims,
          [&](std::int64_t n, std::int64_t k) { return code(0, n, k) ^ (signed_codes ? 8 : 0); },
          rows);
      const std::size_t cut = rows.size() / 64 * 24;
      const CodeRows parts[] = {
          {.codes = std::span(rows).first(cut), .dims = {.n = 24, .k = 96}, .first_n = 0},
          {.codes = std::span(rows).subspan(cut), .dims = {.n = 40, .k = 96}, .first_n = 24}};
      std::vector<std::byte> blocks(want->blocks.view.bytes.size());
      std::vector<std::byte> scales(want->scales.view.bytes.size());
      std::vector<std::byte> zeros_out(want->zeros.view.bytes.size());
      CpuInt4Rows input{.parts = parts,
                        .signed_codes = signed_codes,
                        .scales = matrix.scales,
                        .zeros = with_zeros ? std::span<const std::int8_t>(zeros)
                                            : std::span<const std::int8_t>{}};
      const CpuInt4Output out{.blocks = blocks, .scales = scales, .zeros = zeros_out};
      const auto done = prepare_cpu_int4_rows(input, dims, 32, out);
      ASSERT_TRUE(done) << done.error().message();
      EXPECT_TRUE(same(want->blocks, blocks)) << with_zeros << signed_codes;
      EXPECT_TRUE(same(want->scales, scales));
      EXPECT_TRUE(same(want->zeros, zeros_out));
      input.parts = std::span(parts).first(1);
      EXPECT_EQ(prepare_cpu_int4_rows(input, dims, 32, out).error().message(),
                "rows: 24, expected 64");
    }
  }
}

// Without zero points, too, the middle of the codes is 8.
TEST(PrepareCpuInt4Test, AndOfAwqWords) {
  const Source<AwqWords<4>, AwqWords<4>> source(0);
  CpuInt4Matrix matrix{.source = WordSource::awq,
                       .words = view(DType::i32, {experts, 96, 8}, source.words),
                       .scales = source.scale_view(),
                       .zeros = view(DType::i32, {experts, 3, 8}, source.zeros)};
  const auto result = prepare_cpu_int4(matrix, dims, 32);
  ASSERT_TRUE(result) << result.error().message();
  expect_weights(*result, true);
  matrix.zeros.reset();
  const auto symmetric = prepare_cpu_int4(matrix, dims, 32);
  ASSERT_TRUE(symmetric);
  expect_weights(*symmetric, false);
}

TEST(PrepareCpuInt4Test, RefusesWithNumbers) {
  const CpuInt4Matrix matrix;
  const auto refusal = [&](Dims size, std::int64_t group) {
    return prepare_cpu_int4(matrix, size, group).error().message();
  };
  EXPECT_EQ(refusal({.n = 40, .k = 64}, 32), "words: n is 40, expected a multiple of 32");
  EXPECT_EQ(refusal({.n = 64, .k = 96}, 64),
            "words: k is 96, expected a multiple of the group, 64, and of the block, 64");
  EXPECT_EQ(refusal({.n = 64, .k = 96}, 96),
            "words: blocks of 96 k, expected a group size of 16, 32, 64 or a multiple of 128");
  EXPECT_EQ(refusal({.n = 64, .k = 96}, 32),
            "words: shape [], expected three extents, experts first");
}

}  // namespace
}  // namespace fewbit
