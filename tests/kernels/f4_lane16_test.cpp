// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/f4_lane16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/float_convert.hpp"
#include "kernels/levels.hpp"
#include "kernels/panel_buffer.hpp"
#include "layout/cpu_f4_lane16.hpp"
#include "layout/pack.hpp"

namespace fewbit {
namespace {

using test::GuardedFloats;

F4Lane16Fn* kernel(IsaLevel level) {
  switch (level) {
    case IsaLevel::avx512:
      return f4_lane16_avx512;
    case IsaLevel::avx2:
      return f4_lane16_avx2;
    default:
      return f4_lane16_generic;
  }
}

// A matrix as codes and scale bytes, its meaning, and its packed form.
class F4Matrix {
 public:
  F4Matrix(Dims dims, float global_scale)
      : dims_(dims),
        global_(global_scale),
        codes_(static_cast<std::size_t>(dims.n * dims.k)),
        scales_(static_cast<std::size_t>(dims.n * dims.k / 16)) {}

  std::uint8_t& code(std::int64_t n, std::int64_t k) { return codes_[at(n * dims_.k + k)]; }
  std::uint8_t& scale(std::int64_t n, std::int64_t group) {
    return scales_[at(n * dims_.k / 16 + group)];
  }
  // The canonical value: both products rounded to f32.
  float value(std::int64_t n, std::int64_t k) {
    return f4_e2m1_to_f32(code(n, k)) * (f8_e4m3_to_f32(scale(n, k / 16)) * global_);
  }
  Dims dims() const { return dims_; }

  // Exactly as large as the layout says, so that the address sanitizer sees reads past the end.
  F4Lane16Blocks pack() {
    const Dims grid{.n = dims_.n, .k = dims_.k / 16};
    packed_codes_ = *AlignedBuffer::allocate(static_cast<std::uint64_t>(CpuF4Lane16::bytes(dims_)));
    packed_scales_ =
        *AlignedBuffer::allocate(static_cast<std::uint64_t>(CpuF4Lane16Scales::bytes(grid)));
    fewbit::pack<CpuF4Lane16>(
        dims_, [this](std::int64_t n, std::int64_t k) { return code(n, k); }, packed_codes_.span());
    fewbit::pack<CpuF4Lane16Scales>(
        grid, [this](std::int64_t n, std::int64_t g) { return scale(n, g); },
        packed_scales_.span());
    return {.codes = reinterpret_cast<const std::uint8_t*>(packed_codes_.data()),
            .scales = reinterpret_cast<const std::uint8_t*>(packed_scales_.data()),
            .global_scale = global_,
            .blocks = (dims_.n + 15) / 16,
            .k = dims_.k};
  }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  Dims dims_;
  float global_;
  std::vector<std::uint8_t> codes_, scales_;
  AlignedBuffer packed_codes_, packed_scales_;
};

// Scale bytes to draw from.
enum class Scales { usual, subnormal_and_largest, signed_any };

F4Matrix random_matrix(Dims dims, Scales kind, std::mt19937& random) {
  F4Matrix matrix(dims, 0.00731F);
  for (std::int64_t n = 0; n < dims.n; ++n)
    for (std::int64_t k = 0; k < dims.k; ++k)
      matrix.code(n, k) = static_cast<std::uint8_t>(random() & 15U);
  for (std::int64_t n = 0; n < dims.n; ++n)
    for (std::int64_t g = 0; g < dims.k / 16; ++g) {
      std::uint8_t& scale = matrix.scale(n, g);
      if (kind == Scales::usual) scale = static_cast<std::uint8_t>(0x30 + random() % 32);
      if (kind == Scales::subnormal_and_largest)
        scale = random() % 2 == 0 ? static_cast<std::uint8_t>(random() % 8) : 0x7e;
      if (kind == Scales::signed_any)
        scale = static_cast<std::uint8_t>(random() % 127 + (random() % 2) * 128);
    }
  return matrix;
}

std::vector<float> random_tokens(std::int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = normal(random) * (random() % 64 == 0 ? 100.0F : 1.0F);
  return x;
}

class F4Lane16Test : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override { FEWBIT_SKIP_UNUSABLE(GetParam()); }

  static GuardedFloats run(F4Matrix& matrix, const std::vector<float>& x, int tokens) {
    const F4Lane16Blocks blocks = matrix.pack();
    GuardedFloats panel = test::panel_of(x, blocks.k, tokens);
    GuardedFloats y(blocks.blocks * 16 * tokens);
    kernel(GetParam())(blocks, panel.data(), tokens, y.data());
    y.expect_guards_intact();
    panel.expect_guards_intact();
    return y;
  }

  // Every result against the sum in double, and zeros in the rows of the padding.
  static void expect_within_bound(F4Matrix& matrix, const std::vector<float>& x, int tokens) {
    GuardedFloats y = run(matrix, x, tokens);
    const auto [n, k] = matrix.dims();
    const double roundings = static_cast<double>(std::max(k, k / 16 + 20));
    for (int t = 0; t < tokens; ++t) {
      for (std::int64_t row = 0; row < (n + 15) / 16 * 16; ++row) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t i = 0; i < k && row < n; ++i) {
          const double product =
              double{matrix.value(row, i)} * double{x[static_cast<std::size_t>(t * k + i)]};
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

TEST_P(F4Lane16Test, EveryNumberOfTokensStaysWithinTheBound) {
  std::mt19937 random(1);
  F4Matrix matrix = random_matrix({.n = 48, .k = 176}, Scales::usual, random);
  for (int tokens = 1; tokens <= max_panel_tokens; ++tokens)
    expect_within_bound(matrix, random_tokens(176 * tokens, random), tokens);
}

TEST_P(F4Lane16Test, OddSizesAndExtremeScalesStayWithinTheBound) {
  std::mt19937 random(2);
  for (const Dims dims : {Dims{48, 464}, Dims{80, 2880}, Dims{160, 2688}, Dims{4304, 16},
                          Dims{1, 32}, Dims{17, 48}}) {
    for (const Scales kind : {Scales::usual, Scales::subnormal_and_largest, Scales::signed_any}) {
      F4Matrix matrix = random_matrix(dims, kind, random);
      for (const int tokens : {1, 5}) {
        expect_within_bound(matrix, random_tokens(dims.k * tokens, random), tokens);
      }
    }
  }
}

// Row s has the scale byte s and the codes 0..15; token k is one at k: every product alone.
TEST_P(F4Lane16Test, EveryCodeTimesEveryScaleIsExact) {
  F4Matrix matrix({.n = 256, .k = 16}, 1.7F);
  for (int row = 0; row < 256; ++row) {
    matrix.scale(row, 0) = static_cast<std::uint8_t>(row);
    for (int k = 0; k < 16; ++k) matrix.code(row, k) = static_cast<std::uint8_t>(k);
  }
  std::vector<float> x(256);
  for (std::size_t k = 0; k < 16; ++k) x[k * 17] = 1.0F;
  GuardedFloats y = run(matrix, x, 16);
  int nans = 0;
  for (int row = 0; row < 256; ++row) {
    for (int k = 0; k < 16; ++k) {
      const float expected = matrix.value(row, k);
      const float got = test::result_at(y, row, k, 16);
      nans += std::isnan(expected) ? 1 : 0;
      EXPECT_TRUE(got == expected || (std::isnan(got) && std::isnan(expected)))
          << "scale " << row << " code " << k << ": " << got << ", expected " << expected;
    }
  }
  EXPECT_EQ(nans, 2 * 16);  // scales 0x7f and 0xff
}

TEST_P(F4Lane16Test, ATokenDoesNotDependOnTheOthers) {
  std::mt19937 random(3);
  F4Matrix matrix = random_matrix({.n = 32, .k = 96}, Scales::usual, random);
  const std::vector<float> x = random_tokens(96 * max_panel_tokens, random);
  for (int tokens = 1; tokens <= max_panel_tokens; ++tokens) {
    GuardedFloats all = run(matrix, x, tokens);
    const auto last = x.begin() + std::ptrdiff_t{96} * (tokens - 1);
    GuardedFloats alone = run(matrix, std::vector<float>(last, last + 96), 1);
    for (std::int64_t row = 0; row < 32; ++row) {
      ASSERT_EQ(test::result_at(all, row, tokens - 1, tokens), test::result_at(alone, row, 0, 1))
          << "row " << row << ", " << tokens << " tokens";
    }
  }
}

FEWBIT_INSTANTIATE_LEVELS(F4Lane16Test);

}  // namespace
}  // namespace fewbit
