// SPDX-License-Identifier: Apache-2.0
// lane16_tiles on the unit in plain C++, and on tiles and dot products where this CPU has them.
#include "kernels/cpu/lane16_tiles.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "kernels/lane16_matrix.hpp"
#include "kernels/levels.hpp"
#include "kernels/panel_buffer.hpp"
#include "kernels/soft_tiles.hpp"
#include "kernels/tile_buffer.hpp"

namespace fewbit {
namespace {

using test::GuardedFloats;
using test::Lane16Form;
using test::Lane16Matrix;

// Scales in the values and beside them; groups of one cell, of an odd number, longer than a chunk,
// no multiple of one and over all of k.
constexpr Lane16Form forms[] = {
    {"nvfp4"},
    {"mxfp4", Lane16Codes::f4_e2m1, Lane16Scale::f8_e8m0, 32},
    {"e2m1_e8m0_16", Lane16Codes::f4_e2m1, Lane16Scale::f8_e8m0, 16},
    {"e2m1_e4m3_32", Lane16Codes::f4_e2m1, Lane16Scale::f8_e4m3, 32},
    {"e2m1_f16_48", Lane16Codes::f4_e2m1, Lane16Scale::f16, 48},
    {"int4_bf16_128", Lane16Codes::int4, Lane16Scale::bf16, 128, true},
    {"int4_f16_32", Lane16Codes::int4, Lane16Scale::f16, 32, true},
    {"int4_f16_16", Lane16Codes::int4, Lane16Scale::f16, 16},
    {"int4_signed_f32_row", Lane16Codes::int4, Lane16Scale::f32, 0},
    {"int4_f16_1040", Lane16Codes::int4, Lane16Scale::f16, 1040},
    {"int4_zeros_f16_64", Lane16Codes::int4_zeros, Lane16Scale::f16, 64, true},
    {"int4_zeros_signed_bf16_48", Lane16Codes::int4_zeros, Lane16Scale::bf16, 48},
    {"int8_bf16_row", Lane16Codes::int8, Lane16Scale::bf16, 0},
    {"int8_offset_f16_192", Lane16Codes::int8, Lane16Scale::f16, 192, true},
    {"int8_zeros_f16_128", Lane16Codes::int8_zeros, Lane16Scale::f16, 128, true},
    {"int8_zeros_signed_f32_32", Lane16Codes::int8_zeros, Lane16Scale::f32, 32},
    {"fp8_f32_row", Lane16Codes::f8_e4m3, Lane16Scale::f32, 0},
    {"fp8_blocks", Lane16Codes::f8_e4m3, Lane16Scale::f32_blocks, 128},
    {"mxfp8", Lane16Codes::f8_e4m3, Lane16Scale::f8_e8m0, 32},
    {"int4_blocks", Lane16Codes::int4, Lane16Scale::f32_blocks, 128, true},
    {"ternary_f16_64", Lane16Codes::ternary, Lane16Scale::f16, 64},
    {"ternary_blocks", Lane16Codes::ternary, Lane16Scale::f32_blocks, 0},
};

enum class Unit { soft, amx, dots };

// bf16 tokens as values.
std::vector<float> random_tokens(std::int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x)
    value = bf16_to_f32(f32_to_bf16(normal(random) * (random() % 64 == 0 ? 100.0F : 1.0F)));
  return x;
}

class TilesTest : public ::testing::TestWithParam<std::tuple<Unit, Lane16Form>> {
 protected:
  void SetUp() override {
    FEWBIT_SKIP_UNUSABLE(unit() == Unit::amx ? IsaLevel::amx : IsaLevel::avx512);
    if (unit() == Unit::dots) FEWBIT_SKIP_WITHOUT_DOTS();
  }
  static Unit unit() { return std::get<0>(GetParam()); }
  static const Lane16Form& form() { return std::get<1>(GetParam()); }
  // Of few units of work: the unit in C++ takes a microsecond for what the other does in some ns.
  static bool slow() { return unit() == Unit::soft; }

  static Lane16Matrix random_matrix(Dims dims, std::mt19937& random,
                                    float global_scale = 0.00731F) {
    Lane16Matrix matrix(form(), dims, global_scale);
    matrix.fill(random);
    return matrix;
  }

  // All blocks in pairs of neighbours, the last one alone where their number is odd.
  static GuardedFloats run(Lane16Matrix& matrix, const std::vector<float>& x, std::int64_t tokens,
                           Unit on = unit()) {
    const Lane16Blocks blocks = matrix.pack();
    test::TileBuffer operand(x, blocks.k, tokens);
    GuardedFloats y(blocks.blocks * 16 * tokens);
    Lane16TilesFn* const kernel = on == Unit::amx    ? lane16_amx(form().codes)
                                  : on == Unit::dots ? lane16_dots_avx512(form().codes)
                                                     : test::lane16_soft_tiles(form().codes);
    Lane16Tiles tiles{.left = blocks,
                      .right = block(matrix, blocks, 1),
                      .pairs = blocks.blocks / 2,
                      .step = 2,
                      .x = operand.data(),
                      .tokens = tokens,
                      .left_y = y.data(),
                      .right_y = y.data() + tokens * 16,
                      .y_token = 16,
                      .y_pair = 2 * tokens * 16};
    if (tiles.pairs > 0) kernel(tiles);
    if (blocks.blocks % 2 != 0) {
      tiles.left = block(matrix, blocks, blocks.blocks - 1);
      tiles.right = {};
      tiles.left_y = y.data() + (blocks.blocks - 1) * tokens * 16;
      tiles.right_y = nullptr;
      tiles.pairs = 1;
      kernel(tiles);
    }
    y.expect_guards_intact();
    return y;
  }

  static Lane16Blocks block(Lane16Matrix& matrix, Lane16Blocks from, std::int64_t index) {
    const std::int64_t groups = matrix.groups();
    const bool shared = form().scale == Lane16Scale::f32_blocks;
    from.codes += index * from.k / 16 * lane16_cell_bytes(form().codes);
    from.scales += index * groups * (shared ? 4 : 16 * lane16_scale_bytes(form().scale));
    if (from.zeros != nullptr) from.zeros += index * groups * 16;
    from.blocks -= index;
    return from;
  }

  static void expect_within_bound(Lane16Matrix& matrix, const std::vector<float>& x,
                                  std::int64_t tokens) {
    GuardedFloats y = run(matrix, x, tokens);
    const auto [n, k] = matrix.dims();
    std::vector<double> values(static_cast<std::size_t>(k));
    // Each product is rounded 18 + k/32 times and once more for each group, the weight itself
    // twice. By dot products as lane16.hpp says.
    const std::int64_t group = form().group == 0 ? k : form().group;
    const std::int64_t chain = std::min<std::int64_t>({group, k, 64});
    const std::int64_t roundings =
        unit() == Unit::dots ? chain + ceil_div(k, chain) + 4
                             : std::min<std::int64_t>(std::max<std::int64_t>(k, 22),
                                                      20 + k / 32 + ceil_div(k, group) + k / 496);
    for (std::int64_t row = 0; row < (n + 15) / 16 * 16; ++row) {
      for (std::int64_t i = 0; i < k; ++i)
        values[static_cast<std::size_t>(i)] = row < n ? double{matrix.value(row, i)} : 0.0;
      for (std::int64_t t = 0; t < tokens; ++t) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const double product =
              values[static_cast<std::size_t>(i)] * double{x[static_cast<std::size_t>(t * k + i)]};
          sum += product;
          magnitude += std::abs(product);
        }
        ASSERT_LE(
            std::abs(test::result_at(y, row, static_cast<int>(t), static_cast<int>(tokens)) - sum),
            static_cast<double>(roundings) * 0x1p-24 * magnitude)
            << n << " x " << k << ", row " << row << ", token " << t << " of " << tokens;
      }
    }
  }
};

TEST_P(TilesTest, AnyNumberOfTokensStaysWithinTheBound) {
  std::mt19937 random(1);
  Lane16Matrix matrix = random_matrix({.n = 48, .k = 176}, random);
  for (const std::int64_t tokens : {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 49, 64, 100, 256})
    expect_within_bound(matrix, random_tokens(176 * tokens, random), tokens);
}

TEST_P(TilesTest, OddSizesStayWithinTheBound) {
  std::mt19937 random(2);
  for (const Dims dims : {Dims{48, 464}, Dims{80, 2880}, Dims{160, 2688}, Dims{4304, 16},
                          Dims{1, 32}, Dims{17, 48}, Dims{33, 400}}) {
    Lane16Matrix matrix = random_matrix(dims, random);
    for (const std::int64_t tokens : {1, 5, 37})
      if (!slow() || tokens * dims.n * dims.k < 8'000'000)
        expect_within_bound(matrix, random_tokens(dims.k * tokens, random), tokens);
  }
}

// Sums that wait in y between the chunks of k, beside others that stay in the tiles.
TEST_P(TilesTest, ATokenDoesNotDependOnTheOthers) {
  std::mt19937 random(3);
  const std::int64_t k = 1168;
  Lane16Matrix matrix = random_matrix({.n = 48, .k = k}, random);
  const std::vector<float> x = random_tokens(k * 67, random);
  for (const std::int64_t tokens : {17, 33, 67}) {
    GuardedFloats all = run(matrix, x, tokens);
    for (std::int64_t t = 0; t < tokens; t += 16) {
      const auto from = x.begin() + k * t;
      GuardedFloats alone = run(matrix, std::vector<float>(from, from + k), 1);
      for (std::int64_t row = 0; row < 48; ++row) {
        ASSERT_EQ(test::result_at(all, row, static_cast<int>(t), static_cast<int>(tokens)),
                  test::result_at(alone, row, 0, 1))
            << "row " << row << ", token " << t << " of " << tokens;
      }
    }
  }
}

// As Lane16Test.EveryCodeTimesEveryScaleIsExact: every product alone. A pair with one scale that is
// not ordinary takes the other way, so blocks of ordinary scales come in other orders too. The
// global scale is a power of two, since it may be multiplied after the others.
TEST_P(TilesTest, EveryCodeTimesEveryScaleIsExact) {
  const bool byte_scales =
      lane16_scale_bytes(form().scale) == 1 && form().scale != Lane16Scale::f32_blocks;
  std::mt19937 random(4);
  for (const int spread : {1, 16}) {
    Lane16Matrix matrix = random_matrix({.n = 256, .k = 16}, random, 0x1p-7F);
    for (int row = 0; row < 256; ++row) {
      const int scale = spread == 1 ? row : row % 16 * 16 + row / 16;
      if (byte_scales) matrix.scale(row, 0) = static_cast<std::uint32_t>(scale);
      for (int k = 0; k < 16; ++k)
        matrix.code(row, k) =
            static_cast<std::uint8_t>((row + k) & ((1 << form().code_bits()) - 1));
    }
    std::vector<float> x(256);
    for (std::size_t k = 0; k < 16; ++k) x[k * 17] = 1.0F;
    GuardedFloats y = run(matrix, x, 16);
    for (int row = 0; row < 256; ++row) {
      bool row_is_nan = false;  // NaN times zero is NaN too
      for (int k = 0; k < 16; ++k) row_is_nan |= std::isnan(matrix.value(row, k));
      for (int k = 0; k < 16; ++k) {
        const float expected = matrix.value(row, k);
        const float got = test::result_at(y, row, k, 16);
        EXPECT_TRUE(row_is_nan ? std::isnan(got) : got == expected)
            << "row " << row << " code at " << k << ": " << got << ", expected " << expected;
      }
    }
  }
}

// What the other tests prove of the unit in C++ holds for the instructions of tiles. (Dot products
// round in another order.)
class TilesAndSoftware : public TilesTest {};
TEST_P(TilesAndSoftware, GiveTheSameBits) {
  std::mt19937 random(7);
  for (const float size : {1.0F, 0x1p-120F, 0x1p100F}) {
    Lane16Matrix matrix = random_matrix({.n = 48, .k = 656}, random);
    std::vector<float> x = random_tokens(656 * 35, random);
    for (float& value : x) value *= size;
    GuardedFloats soft = run(matrix, x, 35, Unit::soft);
    GuardedFloats amx = run(matrix, x, 35);
    for (std::int64_t i = 0; i < soft.size(); ++i)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(soft[i]), std::bit_cast<std::uint32_t>(amx[i]))
          << soft[i] << " and " << amx[i] << " at " << i << ", tokens of size " << size;
  }
}

std::string form_suffix(const ::testing::TestParamInfo<std::tuple<Unit, Lane16Form>>& test) {
  const Unit unit = std::get<0>(test.param);
  return std::string(unit == Unit::amx    ? "amx"
                     : unit == Unit::dots ? "dots"
                                          : "soft") +
         "_" + std::get<1>(test.param).name;
}

INSTANTIATE_TEST_SUITE_P(Forms, TilesTest,
                         ::testing::Combine(::testing::Values(Unit::soft, Unit::amx),
                                            ::testing::ValuesIn(forms)),
                         form_suffix);
INSTANTIATE_TEST_SUITE_P(Forms, TilesAndSoftware,
                         ::testing::Combine(::testing::Values(Unit::amx),
                                            ::testing::ValuesIn(forms)),
                         form_suffix);
INSTANTIATE_TEST_SUITE_P(Dots, TilesTest,
                         ::testing::Combine(::testing::Values(Unit::dots),
                                            ::testing::ValuesIn(forms)),
                         form_suffix);

TEST(Lane16Dots, TakeOnlyCodesThatAreExactInPairs) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
  using enum Lane16Codes;
  for (const Lane16Form& form : forms)
    EXPECT_NE(lane16_dots_avx512(form.codes), nullptr) << form.name;
  EXPECT_NE(lane16_dots_avx512(q6_k), nullptr);
  for (const Lane16Codes codes : {nf3, q4_k}) EXPECT_EQ(lane16_dots_avx512(codes), nullptr);
}

// Values worked out by hand: fused chains of even and odd elements, subnormals as zero.
TEST(SoftTiles, RoundAsTheManualSays) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
  std::uint16_t a[32] = {};
  std::uint16_t b[16][16][2] = {};
  float c[16] = {};
  const auto dot = [&] {
    test::soft_dot(1, a, &b[0][0][0], c);
    return c[0];
  };
  // (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14, then -1: exact only where no sum comes between.
  a[0] = a[2] = f32_to_bf16(1 + 0x1p-7F);
  b[0][0][0] = f32_to_bf16(1 + 0x1p-7F);
  b[1][0][0] = f32_to_bf16(-1.0F);
  EXPECT_EQ(dot(), 0x1p-6F + 0x1p-14F - 0x1p-7F);
  // 2^24 + 1 in one chain rounds to 2^24, -2^24 in the other: what is left is 0, and c stays.
  c[0] = 5;
  a[0] = f32_to_bf16(0x1p12F);
  b[0][0][0] = f32_to_bf16(0x1p12F);
  a[2] = b[1][0][0] = f32_to_bf16(1.0F);
  a[1] = f32_to_bf16(0x1p12F);
  b[0][0][1] = f32_to_bf16(-0x1p12F);
  EXPECT_EQ(dot(), 5.0F);
  // A product of 2^-127, and an operand of 2^-127 times 2^20.
  std::ranges::fill(a, std::uint16_t{0});
  c[0] = 0;
  a[0] = f32_to_bf16(0x1p-64F);
  b[0][0][0] = f32_to_bf16(0x1p-63F);
  a[1] = f32_to_bf16(0x1p-127F);
  b[0][0][1] = f32_to_bf16(0x1p20F);
  EXPECT_EQ(dot(), 0.0F);
}

}  // namespace
}  // namespace fewbit
