// SPDX-License-Identifier: Apache-2.0
// Dot products of bf16 pairs at the ends of what bf16 and scales can hold, where this CPU has them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <vector>

#include "kernels/cpu/lane16_tiles.hpp"
#include "kernels/lane16_matrix.hpp"
#include "kernels/levels.hpp"
#include "kernels/tile_buffer.hpp"

namespace fewbit {
namespace {

using test::GuardedFloats;
using test::Lane16Form;
using test::Lane16Matrix;

constexpr Lane16Form forms[] = {
    {"nvfp4"},
    {"mxfp4", Lane16Codes::f4_e2m1, Lane16Scale::f8_e8m0, 32},
    {"e2m1_f32_48", Lane16Codes::f4_e2m1, Lane16Scale::f32, 48},
    {"int4_bf16_128", Lane16Codes::int4, Lane16Scale::bf16, 128, true},
    {"int4_f16_32", Lane16Codes::int4, Lane16Scale::f16, 32, true},
    {"int4_signed_f32_row", Lane16Codes::int4, Lane16Scale::f32, 0},
    {"fp8_f32_row", Lane16Codes::f8_e4m3, Lane16Scale::f32, 0},
    {"fp8_blocks", Lane16Codes::f8_e4m3, Lane16Scale::f32_blocks, 128},
    {"mxfp8", Lane16Codes::f8_e4m3, Lane16Scale::f8_e8m0, 32},
    {"int4_zeros_f16_128", Lane16Codes::int4_zeros, Lane16Scale::f16, 128, true},
    {"int4_zeros_signed_bf16_32", Lane16Codes::int4_zeros, Lane16Scale::bf16, 32},
    {"int8_bf16_row", Lane16Codes::int8, Lane16Scale::bf16, 0},
    {"int8_offset_blocks", Lane16Codes::int8, Lane16Scale::f32_blocks, 128, true},
    {"int8_zeros_f16_64", Lane16Codes::int8_zeros, Lane16Scale::f16, 64, true},
    {"int8_zeros_signed_f32_48", Lane16Codes::int8_zeros, Lane16Scale::f32, 48},
    {"ternary_f16_128", Lane16Codes::ternary, Lane16Scale::f16, 128},
    {"ternary_blocks", Lane16Codes::ternary, Lane16Scale::f32_blocks, 64},
};

class DotsTest : public ::testing::TestWithParam<Lane16Form> {
 protected:
  void SetUp() override {
    FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
    FEWBIT_SKIP_WITHOUT_DOTS();
  }
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

  static Lane16Matrix random_matrix(Dims dims, std::mt19937& random) {
    Lane16Matrix matrix(GetParam(), dims, 0.00731F);
    matrix.fill(random);
    return matrix;
  }
  static std::uint32_t word(std::mt19937& random) { return static_cast<std::uint32_t>(random()); }
  // bf16 of a random sign and significand, with exponents (biased) `lowest` to `highest`.
  static float random_bf16(int lowest, int highest, std::mt19937& random) {
    const auto first = static_cast<std::uint32_t>(lowest);
    const auto count = static_cast<std::uint32_t>(highest - lowest + 1);
    const std::uint32_t exponent = first + word(random) % count;
    return std::bit_cast<float>((word(random) & 0x807fU) << 16 | exponent << 23);
  }
  static std::vector<float> random_tokens(std::int64_t count, int lowest, int highest,
                                          std::mt19937& random) {
    std::vector<float> x(at(count));
    for (float& value : x) value = random_bf16(lowest, highest, random);
    return x;
  }

  static GuardedFloats run(Lane16Matrix& matrix, const std::vector<float>& x, std::int64_t tokens) {
    const Lane16Blocks blocks = matrix.pack();
    test::TileBuffer operand(x, blocks.k, tokens);
    GuardedFloats y(blocks.blocks * 16 * tokens);
    lane16_dots_avx512(GetParam().codes)({.left = blocks,
                                          .right = {},
                                          .pairs = blocks.blocks,
                                          .step = 1,
                                          .x = operand.data(),
                                          .tokens = tokens,
                                          .left_y = y.data(),
                                          .right_y = nullptr,
                                          .y_token = 16,
                                          .y_pair = tokens * 16});
    y.expect_guards_intact();
    return y;
  }

  // What the sum is in double, its bound as lane16.hpp and lane16_tiles.hpp say, and whether f32
  // can hold all that is added.
  struct Expected {
    double sum = 0;
    double bound = 0;
    bool fits = true;
  };
  static Expected expected(Lane16Matrix& matrix, std::int64_t row, const float* x) {
    const std::int64_t k = matrix.dims().k;
    const std::int64_t group = GetParam().group == 0 ? k : GetParam().group;
    const std::int64_t chain = std::min<std::int64_t>(group, 64);
    Expected out;
    double magnitude = 0;
    double flushed = 0;
    for (std::int64_t i = 0; i < k; ++i) {
      const double scale = std::abs(double{matrix.scale_of(row, i / group)});
      const double product = double{matrix.value(row, i)} * double{x[i]};
      out.sum += product;
      magnitude += std::abs(product);
      flushed += 0x1p-126 * std::max(1.0, scale) + 0x1p-149 * std::abs(double{x[i]});
      out.fits &= scale > 0 ? magnitude / scale < 0x1p127 : true;
    }
    const auto roundings = static_cast<double>(std::min(chain, k) + ceil_div(k, chain) + 4);
    out.bound = roundings * 0x1p-24 * magnitude + flushed;
    out.fits &= magnitude < 0x1p127;
    return out;
  }
  // The number of results that were compared.
  static std::int64_t expect_within_bound(Lane16Matrix& matrix, const std::vector<float>& x,
                                          std::int64_t tokens) {
    GuardedFloats y = run(matrix, x, tokens);
    const auto [n, k] = matrix.dims();
    std::int64_t compared = 0;
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        const Expected want = expected(matrix, row, x.data() + t * k);
        if (!want.fits) continue;
        ++compared;
        const float got = test::result_at(y, row, static_cast<int>(t), static_cast<int>(tokens));
        if (!(std::abs(double{got} - want.sum) <= want.bound)) {
          ADD_FAILURE() << n << " x " << k << ", row " << row << ", token " << t << " of " << tokens
                        << ": " << got << ", want " << want.sum << " +- " << want.bound;
          return compared;
        }
      }
    }
    return compared;
  }
};

TEST_P(DotsTest, EveryNumberOfTokensAndOddSizesStayWithinTheBound) {
  std::mt19937 random(1);
  for (const Dims dims : {Dims{48, 464}, Dims{80, 2880}, Dims{160, 2688}, Dims{4304, 16},
                          Dims{16, 16}, Dims{33, 48}}) {
    Lane16Matrix matrix = random_matrix(dims, random);
    const bool large = dims.n * dims.k > 50'000;
    for (std::int64_t tokens = 1; tokens <= 33; tokens += large ? 16 : 1)
      expect_within_bound(matrix, random_tokens(dims.k * tokens, 117, 130, random), tokens);
  }
}

// Of activations that are subnormal, close to it, huge, and of all sizes at once.
TEST_P(DotsTest, ActivationsOfAnySizeStayWithinTheBound) {
  std::mt19937 random(2);
  struct Exponents {
    int lowest, highest;
  };
  for (const auto [lowest, highest] :
       {Exponents{0, 0}, Exponents{0, 2}, Exponents{1, 8}, Exponents{222, 225}, Exponents{0, 225},
        Exponents{100, 150}}) {
    SCOPED_TRACE(lowest);
    Lane16Matrix matrix = random_matrix({.n = 48, .k = 464}, random);
    for (const std::int64_t tokens : {1, 3, 6, 16, 17})
      EXPECT_EQ(
          expect_within_bound(matrix, random_tokens(464 * tokens, lowest, highest, random), tokens),
          48 * tokens);
  }
}

// Scales of every size, the same for a row or not: what fits in f32 is within the bound.
TEST_P(DotsTest, ScalesOfAnySizeStayWithinTheBound) {
  std::mt19937 random(3);
  const auto random_scale = [&]() -> std::uint32_t {
    switch (GetParam().scale) {
      case Lane16Scale::f8_e4m3:
        return word(random) % 127 | (word(random) & 0x80U);
      case Lane16Scale::f8_e8m0:
        return word(random) % 255;
      case Lane16Scale::f16:
        return word(random) & 0xfbffU;
      case Lane16Scale::bf16:
        return word(random) & 0xff7fU;
      default:
        return word(random) & 0xff7fffffU;
    }
  };
  std::int64_t compared = 0;
  for (int turn = 0; turn < 20; ++turn) {
    Lane16Matrix matrix = random_matrix({.n = 64, .k = 320}, random);
    for (std::int64_t row = 0; row < 64; ++row) {
      const std::uint32_t of_row = random_scale();
      for (std::int64_t g = 0; g < matrix.groups(); ++g)
        matrix.scale(row, g) = row % 2 == 0 ? of_row : random_scale();
    }
    compared += expect_within_bound(matrix, random_tokens(320 * 5, 110, 130, random), 5);
  }
  EXPECT_GT(compared, 1000);
}

// Zero points of 8 bits, as a matrix may have them beside codes of 4, in a few blocks of some.
class DotsZeroPoints : public DotsTest {};
TEST_P(DotsZeroPoints, OfAnySizeStayWithinTheBound) {
  std::mt19937 random(6);
  for (const std::uint32_t in_32 : {0U, 1U, 32U}) {
    Lane16Matrix matrix = random_matrix({.n = 176, .k = 464}, random);
    const bool four = GetParam().codes == Lane16Codes::int4_zeros;
    for (std::int64_t row = 0; row < 176; ++row)
      for (std::int64_t g = 0; g < matrix.groups(); ++g) {
        // The largest that takes a code to -16, which GPTQ's zero points of 15 less one mean.
        if (four && word(random) % 2 == 0) matrix.zero(row, g) = GetParam().offset_codes ? 16 : 8;
        if (row < 64 && word(random) % 32 < in_32)
          matrix.zero(row, g) = static_cast<std::uint8_t>(word(random));
      }
    for (const std::int64_t tokens : {1, 2, 7, 18})
      EXPECT_EQ(expect_within_bound(matrix, random_tokens(464 * tokens, 117, 130, random), tokens),
                176 * tokens);
  }
}

// What is no number spoils what it is multiplied into, and that only.
TEST_P(DotsTest, InfinityAndNanReachTheirOwnTokenAndRowOnly) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  std::mt19937 random(4);
  const std::int64_t k = 208;
  for (const std::int64_t tokens : {1, 2, 5, 9, 16, 19}) {
    Lane16Matrix matrix = random_matrix({.n = 48, .k = k}, random);
    std::vector<float> x = random_tokens(k * tokens, 120, 130, random);
    const bool e4m3 = GetParam().codes == Lane16Codes::f8_e4m3;
    if (e4m3) matrix.code(5, 77) = 0x7f;
    if (e4m3) matrix.code(47, 207) = 0xff;
    for (std::int64_t t = 0; t < tokens; t += 3)
      x[at(t * k + t * 11 % k)] = t % 2 == 0 ? (t % 4 == 0 ? infinity : -infinity) : nan;
    GuardedFloats y = run(matrix, x, tokens);
    for (std::int64_t row = 0; row < 48; ++row) {
      for (std::int64_t t = 0; t < tokens; ++t) {
        const Expected want = expected(matrix, row, x.data() + t * k);
        const float got = test::result_at(y, row, static_cast<int>(t), static_cast<int>(tokens));
        const bool same = std::isnan(want.sum)   ? std::isnan(got)
                          : std::isinf(want.sum) ? double{got} == want.sum
                                                 : std::abs(double{got} - want.sum) <= want.bound;
        EXPECT_TRUE(same) << "row " << row << ", token " << t << " of " << tokens << ": " << got
                          << ", want " << want.sum;
      }
    }
  }
}

// A dot product of a pair is two fused multiply-adds, of k + 4 first, subnormals as zero: the same
// precision as f32 multiply-adds.
TEST_P(DotsTest, EveryProductIsAddedByItsOwnFusedMultiplyAdd) {
  const auto flush = [](float x) { return std::abs(x) < 0x1p-126F ? 0.0F : x; };
  std::mt19937 random(5);
  const std::int64_t k = GetParam().group == 0 ? 64 : std::min<std::int64_t>(GetParam().group, 64);
  for (const auto& [lowest, highest] : {std::pair{117, 130}, std::pair{0, 6}, std::pair{80, 180}}) {
    Lane16Matrix matrix(GetParam(), {.n = 16, .k = k}, 1.0F);
    matrix.fill(random);
    const std::vector<float> x = random_tokens(k * 3, lowest, highest, random);
    GuardedFloats y = run(matrix, x, 3);
    for (std::int64_t row = 0; row < 16; ++row) {
      for (std::int64_t t = 0; t < 3; ++t) {
        const float scale = matrix.scale_of(row, 0);
        float sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const std::int64_t place = i / 8 * 8 + i % 8 / 2 + (i % 2 == 0 ? 4 : 0);
          const float w = matrix.code_of(row, place);
          sum = flush(std::fma(w, flush(x[at(t * k + place)]), sum));
        }
        EXPECT_EQ(scale * sum, test::result_at(y, row, static_cast<int>(t), 3))
            << "row " << row << ", token " << t;
      }
    }
  }
}

std::vector<Lane16Form> forms_with_zeros() {
  std::vector<Lane16Form> out;
  std::ranges::copy_if(forms, std::back_inserter(out), &Lane16Form::zeros);
  return out;
}

const auto name_of = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Forms, DotsTest, ::testing::ValuesIn(forms), name_of);
INSTANTIATE_TEST_SUITE_P(Forms, DotsZeroPoints, ::testing::ValuesIn(forms_with_zeros()), name_of);

}  // namespace
}  // namespace fewbit
