// SPDX-License-Identifier: Apache-2.0
#include "layout/marlin_padding.hpp"

#include <gtest/gtest.h>

#include "core/float_convert.hpp"
#include "layout/marlin_e8m0.hpp"

namespace fewbit {
namespace {

TEST(MarlinPaddingTest, OneSideOfABlockIsLong) {
  EXPECT_EQ(marlin_nvfp4_intermediate(256, 96), 128);
  EXPECT_EQ(marlin_nvfp4_intermediate(256, 192), 192);
  EXPECT_EQ(marlin_nvfp4_intermediate(192, 192), 256);
  EXPECT_EQ(marlin_nvfp4_intermediate(96, 192), std::nullopt);
}

TEST(MarlinPaddingTest, DenseLayersTakeTheSmallerWayRound) {
  EXPECT_EQ(marlin_dense_dims({.n = 64, .k = 128}, -1), (Dims{.n = 64, .k = 128}));
  EXPECT_EQ(marlin_dense_dims({.n = 128, .k = 64}, 32), (Dims{.n = 128, .k = 64}));
  for (std::int64_t n = 8; n < 400; n += 24) {
    for (std::int64_t k = 32; k < 600; k += 96) {
      for (const std::int64_t group : {-1, 32, 48, 128}) {
        const Dims d = marlin_dense_dims({.n = n, .k = k}, group);
        EXPECT_GE(d.n, n);
        EXPECT_GE(d.k, k);
        EXPECT_TRUE((d.n % 64 == 0 && d.k % 128 == 0) || (d.n % 128 == 0 && d.k % 64 == 0));
        EXPECT_EQ(d.k % (group > 0 ? group : 1), 0);
      }
    }
  }
}

TEST(MarlinE8m0Test, BytesAre64TimesTheScaleWhereTheyFit) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto stored = marlin_e8m0_byte(static_cast<std::uint8_t>(byte));
    EXPECT_EQ(stored.has_value(), byte <= 248);
    if (!stored) continue;
    EXPECT_EQ(f8_e8m0_to_f32(*stored), 64.0F * f8_e8m0_to_f32(static_cast<std::uint8_t>(byte)));
  }
}

}  // namespace
}  // namespace fewbit
