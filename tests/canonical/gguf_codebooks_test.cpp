// SPDX-License-Identifier: Apache-2.0
// GGUF types whose codes stand for values of a table: FP4, IQ4 and the lattices.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include "canonical/gguf_block.hpp"

namespace fewbit {
namespace {

// In ggml's block low nibbles are elements 0 to 15 and high ones 16 to 31; the scale comes first.
TEST(GgufBlocks, Mxfp4HasItsScaleFirstAndHalvesInNibbles) {
  Block block = {128};
  for (int j = 0; j < 16; ++j) block.push_back(static_cast<std::uint8_t>(j * 0x11));
  const std::vector<float> out = decode(type_named("MXFP4"), block);
  const std::array<float, 16> values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], values[i % 16]) << i;
  EXPECT_FALSE(std::signbit(out[8]));  // ggml's code 8 is +0
}

TEST(GgufBlocks, EveryMxfp4ScaleByteIsItsPowerOfTwo) {
  for (int e = 0; e < 256; ++e) {
    Block block(17, 0x21);  // codes 1 and 2: 0.5 and 1
    block[0] = static_cast<std::uint8_t>(e);
    const std::vector<float> out = decode(type_named("MXFP4"), block);
    if (e == 255) {
      EXPECT_TRUE(std::isnan(out[0]));
      continue;
    }
    EXPECT_EQ(static_cast<double>(out[0]), std::ldexp(0.5, e - 127)) << e;
    EXPECT_EQ(static_cast<double>(out[16]), std::ldexp(1.0, e - 127)) << e;
  }
}

TEST(GgufBlocks, EveryNvfp4ScaleByteIsAnUnsignedE4M3) {
  for (int byte = 0; byte < 256; ++byte) {
    Block block(36, 0x77);  // 6 everywhere
    std::fill_n(block.begin(), 4, std::uint8_t{0});
    block[2] = static_cast<std::uint8_t>(byte);
    const std::vector<float> out = decode(type_named("NVFP4"), block);
    const int exponent = byte >> 3 & 15;
    const int mantissa = byte & 7;
    double scale =
        exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    if (byte == 0x7F) scale = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(static_cast<double>(out[i]), i / 16 == 2 ? 6 * scale : 0.0) << byte << " " << i;
    }
  }
}

TEST(GgufBlocks, Nvfp4SubBlocksHoldTheirHalvesInNibbles) {
  Block block(36, 0);
  std::fill_n(block.begin(), 4, std::uint8_t{0x38});  // 1.0
  for (std::size_t i = 0; i < 32; ++i) block[4 + i] = static_cast<std::uint8_t>(i % 8 + 16);
  const std::vector<float> out = decode(type_named("NVFP4"), block);
  const std::array<float, 8> values = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(out[i], i % 16 < 8 ? values[i % 8] : 0.5F) << i;
  }
}

TEST(GgufBlocks, Iq4TypesReadTheCodebook) {
  const std::array<float, 16> values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
  Block nl = {one_low, one_high};
  for (int j = 0; j < 16; ++j) nl.push_back(static_cast<std::uint8_t>(j | (15 - j) << 4));
  const std::vector<float> out = decode(type_named("IQ4_NL"), nl);
  for (std::size_t j = 0; j < 16; ++j) {
    EXPECT_EQ(out[j], values[j]);
    EXPECT_EQ(out[j + 16], values[15 - j]);
  }
  Block xs(136, 0);
  set_one(xs, 0);
  for (std::size_t group = 0; group < 8; ++group) {
    const std::size_t scale = 5 + 8 * group;  // 5 to 61, stored with an offset of 32
    auto& low = xs[4 + group / 2];
    auto& high = xs[2 + group / 4];
    low = static_cast<std::uint8_t>(low | (scale & 15) << 4 * (group % 2));
    high = static_cast<std::uint8_t>(high | (scale >> 4) << 2 * (group % 4));
    for (std::size_t j = 0; j < 16; ++j) {
      xs[8 + 16 * group + j] = static_cast<std::uint8_t>(j | 9 << 4);
    }
  }
  const std::vector<float> wide = decode(type_named("IQ4_XS"), xs);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t group = i / 32;
    const float scale = 5.0F + 8.0F * static_cast<float>(group) - 32.0F;
    EXPECT_EQ(wide[i], scale * values[i % 32 < 16 ? i % 16 : 9]) << i;
  }
}

// Signs, shifts and scales of the lattice types on vectors that are known: the first of IQ2 and IQ3
// hold their smallest magnitude eight or four times, the first of IQ1 eight times -1.
TEST(GgufBlocks, LatticeTypesApplyScalesAndSigns) {
  Block xxs(66, 0);
  set_one(xxs, 0);
  const std::uint32_t word = 3U << 28 | 0b0000101U
                                            << 7;  // scale 3; second vector: elements 0 and 2
  for (int i = 0; i < 4; ++i)
    xxs[static_cast<std::size_t>(6 + i)] = static_cast<std::uint8_t>(word >> 8 * i);
  const std::vector<float> out = decode(type_named("IQ2_XXS"), xxs);
  EXPECT_EQ(out[0], 8 * 3.5F / 4);
  EXPECT_EQ(out[8], -8 * 3.5F / 4);
  EXPECT_EQ(out[9], 8 * 3.5F / 4);
  EXPECT_EQ(out[10], -8 * 3.5F / 4);
  EXPECT_EQ(out[15], 8 * 3.5F / 4);  // two minus signs: an even number already
  EXPECT_EQ(out[32], 8 * 0.5F / 4);

  Block s(110, 0);
  set_one(s, 0);
  s[74] = 0x80;   // IQ3_S stores all eight signs
  s[106] = 0x20;  // scale 0 for the first 32 elements, 2 for the next
  const std::vector<float> third = decode(type_named("IQ3_S"), s);
  EXPECT_EQ(third[6], 1);
  EXPECT_EQ(third[7], -1);
  EXPECT_EQ(third[32], 5);

  Block one(50, 0);
  set_one(one, 0);
  one[35] = 0x90;  // the first 32 elements: shift down, scale 1
  const std::vector<float> first = decode(type_named("IQ1_S"), one);
  EXPECT_EQ(first[0], 3 * -1.125F);
  EXPECT_EQ(first[32], -0.875F);
}

}  // namespace
}  // namespace fewbit
