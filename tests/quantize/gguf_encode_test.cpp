// SPDX-License-Identifier: Apache-2.0
#include "quantize/gguf_encode.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "canonical/gguf_blocks.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;

std::vector<std::byte> encode(const GgufType& type, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() / static_cast<std::size_t>(type.elements) *
                               static_cast<std::size_t>(type.bytes));
  const auto result = encode_gguf_blocks(type, values, bytes);
  EXPECT_TRUE(result) << (result ? "" : result.error().message());
  return bytes;
}

std::vector<float> round_trip(const GgufType& type, const std::vector<float>& values) {
  std::vector<float> out(values.size());
  EXPECT_TRUE(decode_gguf_blocks(type, encode(type, values), out));
  return out;
}

std::vector<float> normal_values(std::size_t count) {
  std::mt19937 random(7);  // NOLINT(*-msc51-cpp): the same data every time
  std::normal_distribution<float> normal(0, 0.05F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The largest distance to a grid point relative to the block's largest magnitude, from the type's
// definition: half a step, but a whole one for symmetric types, which have no code for the mirror
// image of the extreme.
struct Bound {
  std::string_view type;
  double distance;
};

TEST(GgufEncode, ErrorsStayBelowTheStepOfTheBlock) {
  const Bound bounds[] = {{"Q4_0", 1.0 / 8},  {"Q4_1", 1.0 / 15},  {"Q5_0", 1.0 / 16},
                          {"Q5_1", 1.0 / 31}, {"Q8_0", 0.5 / 127}, {"MXFP4", 2.0 / 6},
                          {"TQ1_0", 0.5},     {"TQ2_0", 0.5},      {"Q2_0", 0.5},
                          {"PQ2_0", 0.5},     {"PTQ1_0", 0.5}};
  const std::vector<float> values = normal_values(1024);
  for (const Bound& bound : bounds) {
    const GgufType& type = *find_gguf_type(bound.type);
    const std::vector<float> out = round_trip(type, values);
    const auto block = static_cast<std::size_t>(type.elements);
    for (std::size_t i = 0; i < values.size(); ++i) {
      double largest = 0;
      for (std::size_t j = i / block * block; j < i / block * block + block; ++j) {
        largest = std::max(largest, std::abs(static_cast<double>(values[j])));
      }
      // The stored scale and minimum are f16: 2^-11 of each.
      const double limit = largest * (bound.distance + 2 * std::ldexp(1, -11));
      EXPECT_LE(std::abs(static_cast<double>(out[i]) - static_cast<double>(values[i])), limit)
          << bound.type << " element " << i;
    }
  }
}

TEST(GgufEncode, WhatATypeCanHoldComesBackExactly) {
  for (const std::string_view name : {"TQ1_0", "TQ2_0", "Q2_0", "PQ2_0", "PTQ1_0"}) {
    std::vector<float> values(512);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.25F * static_cast<float>(static_cast<int>(i * 7 % 3) - 1);
    }
    EXPECT_EQ(round_trip(*find_gguf_type(name), values), values) << name;
  }
  std::vector<float> grid(64);
  for (std::size_t i = 0; i < grid.size(); ++i) grid[i] = 0.5F * static_cast<float>(i % 16) - 4.0F;
  EXPECT_EQ(round_trip(*find_gguf_type("Q4_0"), grid), grid);
  std::vector<float> e2m1 = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.5, -1, -1.5, -2, -3, -4, -6, 0};
  e2m1.insert(e2m1.end(), e2m1.begin(), e2m1.begin() + 16);
  for (float& value : e2m1) value *= 0x1p-20F;
  EXPECT_EQ(round_trip(*find_gguf_type("MXFP4"), e2m1), e2m1);
  for (const std::string_view name : {"F32", "F16", "BF16"}) {
    EXPECT_EQ(round_trip(*find_gguf_type(name), grid), grid) << name;
  }
}

TEST(GgufEncode, BlocksOfZerosAndOfTinyValuesDecodeToZero) {
  for (const GgufType& type : gguf_types()) {
    if (!gguf_encode_refusal(type).empty() || type.dtype) continue;
    for (const float value : {0.0F, -0.0F, 1e-40F, -1e-44F}) {
      const std::vector<float> values(256, value);
      for (const float out : round_trip(type, values)) {
        EXPECT_LE(std::abs(out), std::abs(value) * 2) << type.name;
      }
    }
  }
}

TEST(GgufEncode, Mxfp4TiesGoToTheSmallerMagnitude) {
  std::vector<float> values(32, 0);
  const float ties[] = {6, 0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5, -0.25F, -5};
  const float want[] = {6, 0, 0.5F, 1, 1.5F, 2, 3, 4, 0, -4};
  std::copy(std::begin(ties), std::end(ties), values.begin());
  const std::vector<float> out = round_trip(*find_gguf_type("MXFP4"), values);
  EXPECT_TRUE(std::equal(std::begin(want), std::end(want), out.begin()));
}

TEST(GgufEncode, WhatCannotBeStoredIsRefusedWithItsPlace) {
  const GgufType& type = *find_gguf_type("Q4_0");
  std::vector<std::byte> bytes(36);
  std::vector<float> values(64, 1);
  values[40] = std::numeric_limits<float>::quiet_NaN();
  auto result = encode_gguf_blocks(type, values, bytes);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::corrupt);
  EXPECT_THAT(result.error().what, HasSubstr("element 40 is nan"));

  values[40] = 1e6F;
  result = encode_gguf_blocks(type, values, bytes);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::limit);
  EXPECT_THAT(result.error().what, HasSubstr("block 1 needs a scale of -125000"));

  result = encode_gguf_blocks(type, std::span(values).first(33), bytes);
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().what, HasSubstr("33 elements and 36 bytes"));

  result = encode_gguf_blocks(*find_gguf_type("Q4_K"), values, bytes);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::unsupported);
  EXPECT_THAT(result.error().what, HasSubstr("Q4_K"));
}

}  // namespace
}  // namespace fewbit
