// SPDX-License-Identifier: Apache-2.0
#include "backends/reference/rounding.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace fewbit {
namespace {

// The nearest value with `bits` significant bits, ties to even, by scaling to an integer.
double nearest(double x, int bits) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, bits - exponent)), exponent - bits);
}

// 1 + 2^-8 + 2^-40 lies just above the middle of two bf16 values. Rounded to f32 first it is the
// middle, and the tie would go down to 1.
TEST(Rounding, DoubleToBf16RoundsOnlyOnce) {
  const double x = 1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40);
  EXPECT_EQ(round_to(DType::bf16, x), 1 + std::ldexp(1.0F, -7));
  EXPECT_EQ(round_to(DType::bf16, -x), -1 - std::ldexp(1.0F, -7));
  EXPECT_EQ(round_to(DType::bf16, 1 + std::ldexp(1.0, -8)), 1.0F);
  const double below = 1 + 3 * std::ldexp(1.0, -8) - std::ldexp(1.0, -40);
  EXPECT_EQ(round_to(DType::bf16, below), 1 + std::ldexp(1.0F, -7));
}

TEST(Rounding, AgreesWithExactRoundingOfRandomNumbersAndNearTies) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> uniform(-4, 4);
  for (int i = 0; i < 20000; ++i) {
    // Every second number is within 2^-45 of the middle between two bf16 values.
    double x = uniform(random);
    if (i % 2 == 0) x = nearest(x, 9) * (1 + std::ldexp(uniform(random), -45));
    EXPECT_EQ(round_to(DType::bf16, x), nearest(x, 8)) << x;
    if (std::abs(x) > 1e-3) {
      EXPECT_EQ(round_to(DType::f16, x), nearest(x, 11)) << x;
    }
  }
}

TEST(Rounding, ExtremesStay) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    EXPECT_EQ(round_to(dtype, infinity), infinity);
    EXPECT_EQ(round_to(dtype, -1e300), -infinity);
    EXPECT_TRUE(std::isnan(round_to(dtype, std::nan(""))));
    EXPECT_EQ(round_to(dtype, 0.0), 0.0F);
    EXPECT_EQ(round_to(dtype, 1e-300), 0.0F);
  }
}

TEST(Rounding, StoresTheSameValueAsItRounds) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    std::uint16_t bits[2] = {0, 0x1234};
    store_rounded(dtype, reinterpret_cast<std::byte*>(bits), 0, 0.1);
    EXPECT_EQ(dtype == DType::bf16 ? bf16_to_f32(bits[0]) : f16_to_f32(bits[0]),
              round_to(dtype, 0.1));
    EXPECT_EQ(bits[1], 0x1234);
  }
  float value = 0;
  store_rounded(DType::f32, reinterpret_cast<std::byte*>(&value), 0, 0.1);
  EXPECT_EQ(value, 0.1F);
}

}  // namespace
}  // namespace fewbit
