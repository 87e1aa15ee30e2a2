// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/plain_rows.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <vector>

#include "backends/cpu/kernel_table.hpp"
#include "core/float_convert.hpp"
#include "fewbit/tensor.hpp"
#include "kernels/levels.hpp"
#include "kernels/panel_buffer.hpp"

namespace fewbit {
namespace {

using test::GuardedFloats;

// A matrix in memory at an odd address, followed by nothing: the address sanitizer sees a read past
// its end.
class PlainMatrix {
 public:
  PlainMatrix(DType dtype, std::int64_t rows, std::int64_t k, std::mt19937& random)
      : rows_(rows), k_(k), values_(static_cast<std::size_t>(rows * k)) {
    std::normal_distribution<float> normal;
    const std::size_t size = dtype == DType::f32 ? 4 : 2;
    bytes_.resize(1 + values_.size() * size);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      float value = normal(random);
      std::uint8_t* place = bytes_.data() + 1 + i * size;
      if (dtype == DType::f32) {
        std::memcpy(place, &value, 4);
      } else {
        const std::uint16_t bits =
            dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value * 0x1p-14F);
        value = dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);  // f16: subnormals too
        std::memcpy(place, &bits, 2);
      }
      values_[i] = value;
    }
  }
  PlainRows rows(float scale) const {
    return {.values = bytes_.data() + 1, .scale = scale, .rows = rows_, .k = k_};
  }
  double value(std::int64_t row, std::int64_t k) const {
    return values_[static_cast<std::size_t>(row * k_ + k)];
  }

 private:
  std::int64_t rows_, k_;
  std::vector<float> values_;
  std::vector<std::uint8_t> bytes_;
};

std::vector<float> random_tokens(std::int64_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(count));
  for (float& value : x) value = normal(random);
  return x;
}

class PlainRowsTest : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override { FEWBIT_SKIP_UNUSABLE(GetParam()); }

  static GuardedFloats run(DType dtype, const PlainRows& rows, const std::vector<float>& x,
                           int tokens) {
    GuardedFloats panel = test::panel_of(x, rows.k, tokens);
    GuardedFloats y((rows.rows + 15) / 16 * 16 * tokens);
    cpu::plain_rows(cpu::kernels_of(GetParam()), dtype)(rows, panel.data(), tokens, y.data());
    y.expect_guards_intact();
    return y;
  }

  static void expect_within_bound(DType dtype, std::int64_t n, std::int64_t k, int tokens,
                                  std::mt19937& random) {
    const float scale = 0.37F;
    const PlainMatrix matrix(dtype, n, k, random);
    const std::vector<float> x = random_tokens(k * tokens, random);
    GuardedFloats y = run(dtype, matrix.rows(scale), x, tokens);
    const double roundings = static_cast<double>((k + 7) / 8 + 7);
    for (int t = 0; t < tokens; ++t) {
      for (std::int64_t row = 0; row < (n + 15) / 16 * 16; ++row) {
        double sum = 0;
        double magnitude = 0;
        for (std::int64_t i = 0; i < k && row < n; ++i) {
          const double product =
              scale * matrix.value(row, i) * double{x[static_cast<std::size_t>(t * k + i)]};
          sum += product;
          magnitude += std::abs(product);
        }
        ASSERT_LE(std::abs(test::result_at(y, row, t, tokens) - sum),
                  roundings * 0x1p-24 * magnitude)
            << dtype_name(dtype) << " " << n << " x " << k << ", row " << row << ", token " << t
            << " of " << tokens;
      }
    }
  }
};

TEST_P(PlainRowsTest, EveryNumberOfTokensStaysWithinTheBound) {
  std::mt19937 random(1);
  for (int tokens = 1; tokens <= max_panel_tokens; ++tokens)
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
      expect_within_bound(dtype, 21, 83, tokens, random);
}

TEST_P(PlainRowsTest, OddSizesStayWithinTheBound) {
  std::mt19937 random(2);
  struct Size {
    std::int64_t n, k;
  };
  for (const auto [n, k] : {Size{48, 464}, Size{80, 2880}, Size{160, 2688}, Size{4304, 24},
                            Size{1, 1}, Size{3, 15}, Size{16, 16}, Size{19, 2881}}) {
    for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
      expect_within_bound(dtype, n, k, 1, random);
      expect_within_bound(dtype, n, k, 7, random);
    }
  }
}

TEST_P(PlainRowsTest, ATokenDoesNotDependOnTheOthers) {
  std::mt19937 random(3);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const PlainMatrix matrix(dtype, 18, 100, random);
    const std::vector<float> x = random_tokens(100 * max_panel_tokens, random);
    for (int tokens = 1; tokens <= max_panel_tokens; ++tokens) {
      GuardedFloats all = run(dtype, matrix.rows(1.0F), x, tokens);
      const auto last = x.begin() + std::ptrdiff_t{100} * (tokens - 1);
      GuardedFloats alone = run(dtype, matrix.rows(1.0F), std::vector<float>(last, last + 100), 1);
      for (std::int64_t row = 0; row < 18; ++row) {
        ASSERT_EQ(test::result_at(all, row, tokens - 1, tokens), test::result_at(alone, row, 0, 1))
            << dtype_name(dtype) << " row " << row << ", " << tokens << " tokens";
      }
    }
  }
}

FEWBIT_INSTANTIATE_LEVELS(PlainRowsTest);

}  // namespace
}  // namespace fewbit
