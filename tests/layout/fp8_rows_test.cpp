// SPDX-License-Identifier: Apache-2.0
#include "layout/fp8_rows.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/float_convert.hpp"

namespace fewbit {
namespace {

std::vector<std::uint16_t> bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) bits.push_back(f32_to_bf16(value));
  return bits;
}

TEST(Fp8RowsTest, Bf16RowsHaveTheKnownCodes) {
  const auto row = bf16({0.5F, -0.25F, 0.011F});
  std::vector<std::uint8_t> codes(3);
  EXPECT_NEAR(bf16_row_to_fp8(row, codes), 0.00111607F, 1e-8F);
  EXPECT_EQ(codes, (std::vector<std::uint8_t>{0x7e, 0xf6, 0x52}));
}

TEST(Fp8RowsTest, ZerosAndNanDoNotSpoilARow) {
  std::vector<std::uint8_t> codes(2);
  EXPECT_EQ(bf16_row_to_fp8(bf16({0.0F, 0.0F}), codes), 1.0F);
  EXPECT_EQ(codes, (std::vector<std::uint8_t>{0, 0}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(bf16_row_to_fp8(bf16({nan, 448.0F}), codes), 1.0F);
  EXPECT_TRUE(std::isnan(f8_e4m3_to_f32(codes[0])));
  EXPECT_EQ(codes[1], 0x7e);
}

// Weights around 0.02, the size of most.
class Nvfp4RowsTest : public ::testing::Test {
 protected:
  Nvfp4RowsTest() {
    for (unsigned i = 0; i < 128; ++i) codes_.push_back(static_cast<std::uint8_t>(i * 89 + 7));
    for (unsigned i = 0; i < 16; ++i) scales_.push_back(static_cast<std::uint8_t>(0x38 + i));
    row_ = {.codes = codes_, .scales = scales_, .global_scale = 0x1.3p-8F};
  }
  double weight(std::size_t k) const {
    const unsigned pair = codes_[k / 2];
    const auto code = static_cast<std::uint8_t>(k % 2 == 0 ? pair & 15U : pair >> 4);
    return double{f4_e2m1_to_f32(code)} * double{f8_e4m3_to_f32(scales_[k / 16])} * 0x1.3p-8;
  }
  std::vector<std::uint8_t> codes_;
  std::vector<std::uint8_t> scales_;
  Nvfp4Row row_;
};

// e4m3 has steps of 2^-9 below 2^-6, above three bits of mantissa.
TEST_F(Nvfp4RowsTest, WithoutAScaleAreTheNearestCodes) {
  std::vector<std::uint8_t> out(256);
  nvfp4_row_to_fp8(row_, out);
  for (std::size_t k = 0; k < out.size(); ++k) {
    const double w = weight(k);
    EXPECT_LE(std::abs(double{f8_e4m3_to_f32(out[k])} - w),
              std::max(0x1p-10, std::abs(w) * 0x1p-4));
  }
}

TEST_F(Nvfp4RowsTest, WithAScaleAreCloserThanHalfAStepOfThreeMantissaBits) {
  std::vector<std::uint8_t> out(256);
  const double scale = double{nvfp4_row_to_scaled_fp8(row_, out)};
  for (std::size_t k = 0; k < out.size(); ++k) {
    const double w = weight(k);
    // The quotient is rounded before the code: 2^-23 more.
    EXPECT_LE(std::abs(double{f8_e4m3_to_f32(out[k])} * scale - w),
              std::abs(w) * (0x1p-4 + 0x1p-22))
        << k;
  }
}

TEST(Nvfp4RowsWorked, HasTheKnownCodes) {
  const auto one = [](float value) {
    const std::vector<std::uint8_t> codes(8, 0x22);   // e2m1 code 2 is 1
    const std::vector<std::uint8_t> scales(1, 0x38);  // e4m3 1
    std::vector<std::uint8_t> out(16);
    nvfp4_row_to_fp8({.codes = codes, .scales = scales, .global_scale = value}, out);
    return out.front();
  };
  EXPECT_EQ(one(0.00226688F), 0x01);
  EXPECT_EQ(one(0.0218F), 0x0b);
  EXPECT_EQ(one(0.0007F), 0x00);
}

}  // namespace
}  // namespace fewbit
