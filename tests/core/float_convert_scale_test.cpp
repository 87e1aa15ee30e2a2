// SPDX-License-Identifier: Apache-2.0
// Scale formats, the tie rule of MXFP4 producers, and codebooks: references in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/float_convert.hpp"

namespace fewbit {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

// Finite positive f32 of every exponent with significands around 1, 1.5 and 2, and subnormals.
std::vector<float> positive_inputs() {
  std::vector<float> inputs;
  for (std::uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (const std::uint32_t mantissa : {0U, 1U, 2U, 0x1fffffU, 0x200000U, 0x3fffffU, 0x400000U,
                                         0x400001U, 0x5fffffU, 0x600000U, 0x600001U, 0x7fffffU}) {
      const float x = std::bit_cast<float>(exponent << 23 | mantissa);
      if (x > 0.0F) inputs.push_back(x);
    }
  }
  return inputs;
}

double e8m0_value(int code) { return std::ldexp(1.0, code - 127); }

TEST(E8M0, DecodesEveryCode) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(f8_e8m0_to_f32(static_cast<std::uint8_t>(code)), e8m0_value(code)) << code;
  }
  EXPECT_TRUE(std::isnan(f8_e8m0_to_f32(255)));
}

TEST(E8M0, NearestTakesTheCloserPowerAndTiesGoUp) {
  for (const float x : positive_inputs()) {
    int best = 0;
    for (int code = 1; code <= 255; ++code) {  // 255 stands for 2^128: overflow
      if (std::fabs(x - e8m0_value(code)) <= std::fabs(x - e8m0_value(best))) best = code;
    }
    if (x > 0x1p-127F && x < 0x1p-126F) best = 1;  // always up
    EXPECT_EQ(f32_to_f8_e8m0(x), best) << x;
    EXPECT_EQ(f32_to_f8_e8m0(-x), best) << x;
  }
  EXPECT_EQ(f32_to_f8_e8m0(0.0F), 0);
  EXPECT_EQ(f32_to_f8_e8m0(infinity), 255);
  EXPECT_EQ(f32_to_f8_e8m0(-nan_value), 255);
}

TEST(E8M0, FloorIsTheLargestPowerNotAbove) {
  for (const float x : positive_inputs()) {
    int expected = 0;
    while (expected < 254 && e8m0_value(expected + 1) <= x) ++expected;
    EXPECT_EQ(f32_to_f8_e8m0_floor(x), expected) << x;
    EXPECT_EQ(f32_to_f8_e8m0_floor(-x), expected) << x;
  }
  EXPECT_EQ(f32_to_f8_e8m0_floor(0.0F), 0);
  EXPECT_EQ(f32_to_f8_e8m0_floor(infinity), 254);
  EXPECT_EQ(f32_to_f8_e8m0_floor(nan_value), 255);
}

TEST(E8M0, CeilIsTheSmallestPowerNotBelow) {
  for (const float x : positive_inputs()) {
    int expected = 0;
    while (expected < 254 && e8m0_value(expected) < x) ++expected;
    EXPECT_EQ(f32_to_f8_e8m0_ceil(x), expected) << x;
    EXPECT_EQ(f32_to_f8_e8m0_ceil(-x), expected) << x;
  }
  EXPECT_EQ(f32_to_f8_e8m0_ceil(0.0F), 0);
  EXPECT_EQ(f32_to_f8_e8m0_ceil(infinity), 254);
  EXPECT_EQ(f32_to_f8_e8m0_ceil(nan_value), 255);
}

// value[c] of codes 0..last, increasing: nearest, tie to the even code, above the last the last.
int nearest_even(const std::vector<double>& values, double unclamped) {
  const double x = std::min(unclamped, values.back());
  int best = 0;
  for (int code = 1; code < static_cast<int>(values.size()); ++code) {
    const double distance = std::fabs(x - values[static_cast<std::size_t>(code)]);
    const double best_distance = std::fabs(x - values[static_cast<std::size_t>(best)]);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) best = code;
  }
  return best;
}

std::vector<double> unsigned_values(int codes, int bias) {
  std::vector<double> values;
  for (int code = 0; code < codes; ++code) {
    const int exponent = code / 8;
    const int mantissa = code % 8;
    values.push_back(exponent == 0 ? std::ldexp(mantissa, -2 - bias)
                                   : std::ldexp(8 + mantissa, exponent - bias - 3));
  }
  return values;
}

void expect_nearest(const std::vector<double>& values, std::uint8_t (*encode)(float)) {
  std::vector<float> inputs = positive_inputs();
  for (std::size_t c = 0; c + 1 < values.size(); ++c) {
    for (const double at : {values[c], 0.5 * (values[c] + values[c + 1])}) {
      const float x = static_cast<float>(at);
      inputs.insert(inputs.end(), {std::nextafter(x, 0.0F), x, std::nextafter(x, infinity)});
    }
  }
  inputs.push_back(0.0F);
  for (const float x : inputs) {
    EXPECT_EQ(encode(x), nearest_even(values, x)) << x;
    EXPECT_EQ(encode(-x), 0) << -x;
  }
  EXPECT_EQ(encode(infinity), values.size() - 1);
  EXPECT_EQ(encode(-infinity), 0);
}

TEST(E5M3, HoldsUnsignedFloatsAndSaturates) {
  const std::vector<double> values = unsigned_values(255, 15);
  for (std::size_t code = 0; code < 255; ++code) {
    EXPECT_EQ(f8_e5m3_to_f32(static_cast<std::uint8_t>(code)), values[code]) << code;
  }
  EXPECT_EQ(values[1], 0x1p-17);
  EXPECT_EQ(values[8], 0x1p-14);
  EXPECT_EQ(values[254], 114688.0);
  EXPECT_TRUE(std::isnan(f8_e5m3_to_f32(255)));
  expect_nearest(values, f32_to_f8_e5m3);
  EXPECT_EQ(f32_to_f8_e5m3(nan_value), 255);
  EXPECT_EQ(f32_to_f8_e5m3(-nan_value), 255);
}

TEST(UE4M3, IsE4M3WithoutSignAndReadsItsNanAsZero) {
  const std::vector<double> values = unsigned_values(127, 7);
  for (std::size_t code = 0; code < 127; ++code) {
    EXPECT_EQ(f8_ue4m3_to_f32(static_cast<std::uint8_t>(code)), values[code]) << code;
    EXPECT_EQ(f8_ue4m3_to_f32(static_cast<std::uint8_t>(code | 0x80U)), values[code]) << code;
  }
  EXPECT_EQ(values[126], 448.0);
  EXPECT_EQ(f8_ue4m3_to_f32(0x7f), 0.0F);
  EXPECT_EQ(f8_ue4m3_to_f32(0xff), 0.0F);
  expect_nearest(values, f32_to_f8_ue4m3);
  EXPECT_EQ(f32_to_f8_ue4m3(nan_value), 0x7f);
  EXPECT_EQ(f32_to_f8_ue4m3(-nan_value), 0x7f);
}

TEST(E2M1, TiesDownTakesTheSmallerMagnitudeAndCopiesTheSign) {
  constexpr std::array<double, 8> values = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<float> inputs = positive_inputs();
  for (std::size_t c = 0; c + 1 < values.size(); ++c) {
    const float midpoint = static_cast<float>(0.5 * (values[c] + values[c + 1]));
    EXPECT_EQ(f32_to_f4_e2m1_ties_down(midpoint), c);
    EXPECT_EQ(f32_to_f4_e2m1_ties_down(std::nextafter(midpoint, 9.0F)), c + 1);
    inputs.push_back(midpoint);
  }
  for (const float x : inputs) {
    std::size_t best = 0;
    const double clamped = std::min(static_cast<double>(x), 6.0);
    for (std::size_t c = 1; c < values.size(); ++c) {
      if (std::fabs(clamped - values[c]) < std::fabs(clamped - values[best])) best = c;
    }
    EXPECT_EQ(f32_to_f4_e2m1_ties_down(x), best) << x;
    EXPECT_EQ(f32_to_f4_e2m1_ties_down(-x), best + 8) << x;
  }
  EXPECT_EQ(f32_to_f4_e2m1_ties_down(0.0F), 0);
  EXPECT_EQ(f32_to_f4_e2m1_ties_down(-0.0F), 8);
}

TEST(Codebook, Nf3IsSymmetricWithoutZero) {
  for (std::uint8_t code = 0; code < 8; ++code) {
    EXPECT_EQ(nf3_to_f64(code), -nf3_to_f64(static_cast<std::uint8_t>(7 - code)));
    EXPECT_EQ(nf3_to_f32(code), static_cast<float>(nf3_to_f64(code)));
    EXPECT_NE(nf3_to_f64(code), 0.0);
  }
  EXPECT_EQ(nf3_to_f64(4), 0.1275);
  EXPECT_EQ(nf3_to_f64(5), 0.3563);
  EXPECT_EQ(nf3_to_f64(6), 0.6047);
  EXPECT_EQ(nf3_to_f64(7), 1.0);
}

TEST(Codebook, EncodersFindTheNearestValueOnAGrid) {
  const auto distance = [](double x, double value) { return std::fabs(x - value); };
  for (int i = -4200; i <= 4200; ++i) {
    // No grid point is a midpoint of two values.
    const float x = static_cast<float>(i) * 0.0003F + 0.00001F;
    const std::uint8_t nf3 = f32_to_nf3(x);
    const std::uint8_t nf4 = f32_to_nf4(x);
    for (std::uint8_t code = 0; code < 16; ++code) {
      EXPECT_LE(distance(x, nf3_to_f64(nf3)), distance(x, nf3_to_f64(code))) << x;
      EXPECT_LE(distance(x, nf4_to_f32(nf4)), distance(x, nf4_to_f32(code))) << x;
    }
  }
  for (int twice = -300; twice <= 300; ++twice) {
    const float x = 0.5F * static_cast<float>(twice);
    const std::uint8_t best = f32_to_iq4_nl(x);
    for (std::uint8_t code = 0; code < 16; ++code) {
      const double found = distance(x, iq4_nl_to_i8(best));
      const double other = distance(x, iq4_nl_to_i8(code));
      // A tie takes the higher code.
      EXPECT_TRUE(found < other || (found == other && best >= code)) << x << " code " << +code;
    }
  }
  for (std::uint8_t code = 0; code < 16; ++code) {
    EXPECT_EQ(f32_to_nf4(nf4_to_f32(code)), code);
    EXPECT_EQ(f32_to_iq4_nl(iq4_nl_to_i8(code)), code);
    EXPECT_EQ(f32_to_nf3(nf3_to_f32(code)), code % 8);
  }
  EXPECT_EQ(f32_to_nf4(infinity), 15);
  EXPECT_EQ(f32_to_nf3(-infinity), 0);
  EXPECT_EQ(f32_to_iq4_nl(nan_value), 0);
}

TEST(FloatConvert, IsConstexpr) {
  static_assert(bf16_to_f32(0x3f80) == 1.0F && f32_to_bf16(1.0F) == 0x3f80);
  static_assert(f16_to_f32(0x0001) == 0x1p-24F && f32_to_f16(65520.0F) == 0x7c00);
  static_assert(f8_e4m3_to_f32(0x7e) == 448.0F && f32_to_f8_e4m3(464.0F) == 0x7e);
  static_assert(f32_to_f8_e4m3(465.0F) == 0x7f && f32_to_f8_e4m3_sat(1e9F) == 0x7e);
  static_assert(f8_e5m2_to_f32(0x7b) == 57344.0F && f32_to_f8_e5m2(61440.0F) == 0x7c);
  static_assert(f8_e4m3fnuz_to_f32(0x7f) == 240.0F && f8_e5m2fnuz_to_f32(0x7f) == 57344.0F);
  static_assert(f6_e3m2_to_f32(0x1f) == 28.0F && f6_e2m3_to_f32(0x3f) == -7.5F);
  static_assert(f4_e2m1_to_f32(0xf) == -6.0F && f32_to_f4_e2m1(5.0F) == 6);
  static_assert(f8_e8m0_to_f32(0) == 0x1p-127F && f32_to_nf4(0.04F) == 8);
}

}  // namespace
}  // namespace fewbit
