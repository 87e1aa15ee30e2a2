// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/lane16.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "backends/cpu/kernel_table.hpp"
#include "kernels/lane16_matrix.hpp"
#include "kernels/levels.hpp"
#include "kernels/panel_buffer.hpp"

namespace fewbit {
namespace {

using test::GuardedFloats;
using test::Lane16Form;
using test::Lane16Matrix;

// Every kind of codes, every format of scales, groups of one step, of several, longer than a chain,
// no multiple of one and over all of k, codes with and without a sign.
constexpr Lane16Form forms[] = {
    {"nvfp4"},
    {"mxfp4", Lane16Codes::f4_e2m1, Lane16Scale::f8_e8m0, 32},
    {"e2m1_e4m3_32", Lane16Codes::f4_e2m1, Lane16Scale::f8_e4m3, 32},
    {"int4_bf16_128", Lane16Codes::int4, Lane16Scale::bf16, 128, true},
    {"int4_f16_32", Lane16Codes::int4, Lane16Scale::f16, 32, true},
    {"int4_signed_f32_row", Lane16Codes::int4, Lane16Scale::f32, 0},
    {"int4_zeros_f16_64", Lane16Codes::int4_zeros, Lane16Scale::f16, 64, true},
    {"int4_zeros_signed_bf16_48", Lane16Codes::int4_zeros, Lane16Scale::bf16, 48},
    {"int8_bf16_row", Lane16Codes::int8, Lane16Scale::bf16, 0},
    {"int8_offset_f16_192", Lane16Codes::int8, Lane16Scale::f16, 192, true},
    {"int8_zeros_f16_128", Lane16Codes::int8_zeros, Lane16Scale::f16, 128, true},
    {"int8_zeros_signed_f32_32", Lane16Codes::int8_zeros, Lane16Scale::f32, 32},
    {"fp8_f32_row", Lane16Codes::f8_e4m3, Lane16Scale::f32, 0},
    {"int4_blocks", Lane16Codes::int4, Lane16Scale::f32_blocks, 128, true},
    {"int8_blocks", Lane16Codes::int8, Lane16Scale::f32_blocks, 128, true},
    {"fp8_blocks", Lane16Codes::f8_e4m3, Lane16Scale::f32_blocks, 128},
    {"nf3", Lane16Codes::nf3, Lane16Scale::f8_e4m3, 32},
    {"nf3_f16_row", Lane16Codes::nf3, Lane16Scale::f16, 0},
    {"ternary_f16_64", Lane16Codes::ternary, Lane16Scale::f16, 64},
    {"ternary_f16_128", Lane16Codes::ternary, Lane16Scale::f16, 128},
    {"ternary_blocks", Lane16Codes::ternary, Lane16Scale::f32_blocks, 0},
    {"mxfp8", Lane16Codes::f8_e4m3, Lane16Scale::f8_e8m0, 32},
};

std::vector<float> random_tokens(std::int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = normal(random) * (random() % 64 == 0 ? 100.0F : 1.0F);
  return x;
}

class Lane16Test : public ::testing::TestWithParam<std::tuple<IsaLevel, Lane16Form>> {
 protected:
  void SetUp() override { FEWBIT_SKIP_UNUSABLE(std::get<0>(GetParam())); }
  static const Lane16Form& form() { return std::get<1>(GetParam()); }

  static Lane16Matrix random_matrix(Dims dims, std::mt19937& random) {
    Lane16Matrix matrix(form(), dims, 0.00731F);
    matrix.fill(random);
    return matrix;
  }

  static GuardedFloats run(Lane16Matrix& matrix, const std::vector<float>& x, int tokens) {
    const Lane16Blocks blocks = matrix.pack();
    GuardedFloats panel = test::panel_of(x, blocks.k, tokens);
    GuardedFloats y(blocks.blocks * 16 * tokens);
    const cpu::Kernels& kernels = cpu::kernels_of(std::get<0>(GetParam()));
    kernels.lane16(form().codes)(blocks, panel.data(), tokens, y.data());
    y.expect_guards_intact();
    panel.expect_guards_intact();
    return y;
  }

  // All of a panel; of the kernels that take more some of those too.
  static std::vector<int> token_counts() {
    std::vector<int> counts;
    for (int tokens = 1; tokens <= max_panel_tokens; ++tokens) counts.push_back(tokens);
    const int most = cpu::kernels_of(std::get<0>(GetParam())).lane16_tokens;
    for (const int tokens : {25, 31, 48, 71, 95, 96})
      if (tokens <= most) counts.push_back(tokens);
    return counts;
  }

  // Every result against the sum in double, and zeros in the rows of the padding.
  static void expect_within_bound(Lane16Matrix& matrix, const std::vector<float>& x, int tokens) {
    GuardedFloats y = run(matrix, x, tokens);
    const auto [n, k] = matrix.dims();
    const std::int64_t chain =
        std::min({form().group == 0 ? k : form().group, k, std::int64_t{64}});
    const auto roundings = static_cast<double>(std::max(k, chain + ceil_div(k, chain) + 4));
    std::vector<double> row_values(static_cast<std::size_t>(k));
    for (std::int64_t row = 0; row < (n + 15) / 16 * 16; ++row) {
      for (std::int64_t i = 0; i < k; ++i)
        row_values[static_cast<std::size_t>(i)] = row < n ? double{matrix.value(row, i)} : 0.0;
      for (int t = 0; t < tokens; ++t) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const double product = row_values[static_cast<std::size_t>(i)] *
                                 double{x[static_cast<std::size_t>(t * k + i)]};
          sum += product;
          magnitude += std::abs(product);
        }
        ASSERT_LE(std::abs(test::result_at(y, row, t, tokens) - sum),
                  roundings * 0x1p-24 * magnitude)
            << n << " x " << k << ", row " << row << ", token " << t << " of " << tokens;
      }
    }
  }
};

TEST_P(Lane16Test, EveryNumberOfTokensStaysWithinTheBound) {
  std::mt19937 random(1);
  Lane16Matrix matrix = random_matrix({.n = 80, .k = 176}, random);
  for (const int tokens : token_counts())
    expect_within_bound(matrix, random_tokens(176 * tokens, random), tokens);
}

TEST_P(Lane16Test, OddSizesStayWithinTheBound) {
  std::mt19937 random(2);
  for (const Dims dims : {Dims{48, 464}, Dims{80, 2880}, Dims{160, 2688}, Dims{4304, 16},
                          Dims{1, 32}, Dims{17, 48}, Dims{33, 400}}) {
    Lane16Matrix matrix = random_matrix(dims, random);
    for (const int tokens : {1, 5})
      expect_within_bound(matrix, random_tokens(dims.k * tokens, random), tokens);
  }
}

TEST_P(Lane16Test, ATokenDoesNotDependOnTheOthers) {
  std::mt19937 random(3);
  Lane16Matrix matrix = random_matrix({.n = 80, .k = 336}, random);
  const std::vector<float> x = random_tokens(336 * max_decoded_tokens, random);
  for (const int tokens : token_counts()) {
    GuardedFloats all = run(matrix, x, tokens);
    const auto last = x.begin() + std::ptrdiff_t{336} * (tokens - 1);
    GuardedFloats alone = run(matrix, std::vector<float>(last, last + 336), 1);
    for (std::int64_t row = 0; row < 80; ++row) {
      ASSERT_EQ(test::result_at(all, row, tokens - 1, tokens), test::result_at(alone, row, 0, 1))
          << "row " << row << ", " << tokens << " tokens";
    }
  }
}

// Row r has the scale r (bytes) or a random one, and codes from r on; token k is one at k: every
// product alone, NaN of codes and scales included.
TEST_P(Lane16Test, EveryCodeTimesEveryScaleIsExact) {
  const bool byte_scales =
      lane16_scale_bytes(form().scale) == 1 && form().scale != Lane16Scale::f32_blocks;
  std::mt19937 random(4);
  Lane16Matrix matrix = random_matrix({.n = 256, .k = 16}, random);
  for (int row = 0; row < 256; ++row) {
    if (byte_scales) matrix.scale(row, 0) = static_cast<std::uint32_t>(row);
    for (int k = 0; k < 16; ++k)
      matrix.code(row, k) = static_cast<std::uint8_t>((row + k) & ((1 << form().code_bits()) - 1));
  }
  std::vector<float> x(256);
  for (std::size_t k = 0; k < 16; ++k) x[k * 17] = 1.0F;
  GuardedFloats y = run(matrix, x, 16);
  GuardedFloats first = run(matrix, std::vector<float>(x.begin(), x.begin() + 16), 1);
  for (int row = 0; row < 256; ++row) {
    bool row_is_nan = false;  // NaN times zero is NaN too
    for (int k = 0; k < 16; ++k) row_is_nan |= std::isnan(matrix.value(row, k));
    for (int k = 0; k < 16; ++k) {
      const float expected = matrix.value(row, k);
      const float got = test::result_at(y, row, k, 16);
      EXPECT_TRUE(row_is_nan ? std::isnan(got) : got == expected)
          << "row " << row << " code at " << k << ": " << got << ", expected " << expected;
    }
    const float alone = test::result_at(first, row, 0, 1);
    EXPECT_TRUE(row_is_nan ? std::isnan(alone) : alone == matrix.value(row, 0)) << "row " << row;
  }
}

std::string form_suffix(const ::testing::TestParamInfo<std::tuple<IsaLevel, Lane16Form>>& test) {
  return std::string(isa_name(std::get<0>(test.param))) + "_" + std::get<1>(test.param).name;
}

INSTANTIATE_TEST_SUITE_P(Forms, Lane16Test,
                         ::testing::Combine(::testing::ValuesIn(test::kernel_levels),
                                            ::testing::ValuesIn(forms)),
                         form_suffix);

}  // namespace
}  // namespace fewbit
