// SPDX-License-Identifier: Apache-2.0
#include "layout/w4a16_scale.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace fewbit {
namespace {

TEST(Nvfp4ScaleTest, WorkedBytes) {
  EXPECT_EQ(nvfp4_scale_byte(1.0F, 1.0F), 0xb0);
  EXPECT_EQ(nvfp4_scale_byte(0x1p-6F, 1.0F), 0x80);
  EXPECT_EQ(nvfp4_scale_byte(0x1p-7F, 1.0F), 0x00);
  EXPECT_EQ(nvfp4_scale_byte(0x1p-7F, 32.0F), 0xa0);
  EXPECT_EQ(nvfp4_scale_byte(0.40625F, 32.0F), 0xcd);
  EXPECT_EQ(nvfp4_scale_byte_value(0xcd), 1664.0F);
}

// A code's bits in bf16 times the widened byte times the stored global scale: the true product.
TEST(Nvfp4ScaleTest, WorkedChainGivesTheExactProduct) {
  const float global = 0.37F;
  const float code_bits = bf16_to_f32(0x0140);  // 3.0 * 2^-126
  EXPECT_EQ(code_bits, std::ldexp(3.0F, -126));
  const float product = code_bits * nvfp4_scale_byte_value(nvfp4_scale_byte(0.40625F, 32.0F));
  EXPECT_EQ(f32_to_bf16(product), 0x069c);
  const float stored_global = global * w4a16_global_lift(DType::bf16) / 32.0F;
  EXPECT_EQ(product * stored_global, 3.0F * 0.40625F * global);
}

TEST(Nvfp4ScaleTest, EveryScaleFromTwoToTheMinusSixUpIsKeptExactly) {
  for (int byte = 0; byte < 0x7f; ++byte) {
    const float scale = f8_e4m3_to_f32(static_cast<std::uint8_t>(byte));
    const std::uint8_t encoded = nvfp4_scale_byte(scale, 1.0F);
    if (scale < 0x1p-6F) {
      EXPECT_EQ(encoded, 0) << byte;
    } else {
      EXPECT_EQ(nvfp4_scale_byte_value(encoded), 128.0F * scale) << byte;
      EXPECT_GE(encoded, 0x80) << byte;  // which the bf16 widening needs
    }
  }
}

TEST(Nvfp4ScaleTest, NegativeScalesBecomeZeroAndNanAFiniteByte) {
  EXPECT_EQ(nvfp4_scale_byte(-1.0F, 1.0F), 0);
  EXPECT_EQ(nvfp4_scale_byte(-0.0F, 1.0F), 0);
  EXPECT_EQ(nvfp4_scale_byte(std::numeric_limits<float>::quiet_NaN(), 1.0F), 0xff);
}

TEST(Nvfp4ScaleTest, FactorLiftsTheLargestScaleToAtMost448) {
  const auto factor = [](float max) { return nvfp4_scale_factor(max, DType::bf16); };
  EXPECT_EQ(factor(448.0F), 1.0F);
  EXPECT_EQ(factor(224.0F), 2.0F);
  EXPECT_EQ(factor(240.0F), 1.0F);
  EXPECT_EQ(factor(1.75F), 256.0F);
  EXPECT_EQ(factor(1.875F), 128.0F);
  EXPECT_EQ(factor(0x1p-9F), 131072.0F);
  EXPECT_EQ(factor(0.0F), 1.0F);
  EXPECT_EQ(nvfp4_scale_factor(1.0F, DType::f16), 1.0F);
  for (int byte = 1; byte < 0x7f; ++byte) {
    const float max = f8_e4m3_to_f32(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(factor(max), std::exp2(std::floor(std::log2(448.0 / max)))) << byte;
  }
}

TEST(E8m0ScaleTest, BytesAreLimitedTo247) {
  EXPECT_EQ(e8m0_scale_byte(0), 0);
  EXPECT_EQ(e8m0_scale_byte(246), 246);
  EXPECT_EQ(e8m0_scale_byte(247), 247);
  EXPECT_EQ(e8m0_scale_byte(248), 247);
  EXPECT_EQ(e8m0_scale_byte(255), 247);
}

}  // namespace
}  // namespace fewbit
