// SPDX-License-Identifier: Apache-2.0
// What each part of the canonical form means, with values worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/float_convert.hpp"
#include "fewbit/quantized.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
Tensor own(DType dtype, Shape shape, std::vector<T> values) {
  auto memory = std::make_shared<std::vector<T>>(std::move(values));
  return {{dtype, std::move(shape), std::as_bytes(std::span<const T>(*memory)), {}}, memory};
}

std::vector<float> decode(const QuantizedTensor& tensor) {
  EXPECT_TRUE(check_quantized(tensor)) << check_quantized(tensor).error().message();
  std::vector<float> out(static_cast<std::size_t>(tensor.n * tensor.k));
  EXPECT_TRUE(dequantize_rows(tensor, 0, out));
  return out;
}

QuantizedTensor matrix(std::int64_t n, std::int64_t k, DType weight, Granularity granularity) {
  QuantizedTensor out;
  out.n = n;
  out.k = k;
  out.scheme.producer = Producer::gptq;
  out.scheme.weight = weight;
  out.scheme.scale = ScaleSpec{DType::f32, granularity, false, ScaleDirection::multiply};
  return out;
}

TEST(CanonicalForm, SymmetricUnsignedCodesSubtractTheConstantZero) {
  QuantizedTensor t = matrix(1, 4, DType::u4, {1, 2});
  t.codes = own<std::uint8_t>(DType::u8, {2}, {0xF0, 0x98});  // 0 15 8 9
  t.scales = own<float>(DType::f32, {1, 2}, {0.5F, 2.0F});
  t.scheme.zero_point = 8;
  EXPECT_THAT(decode(t), ElementsAre(-4.0F, 3.5F, 0.0F, 2.0F));
}

TEST(CanonicalForm, StoredZeroPointsAndActOrderFollowTheGroupOfTheColumn) {
  QuantizedTensor t = matrix(1, 4, DType::u4, {1, 2});
  t.codes = own<std::uint8_t>(DType::u8, {2}, {0x53, 0x7F});  // 3 5 15 7
  t.scales = own<float>(DType::f32, {1, 2}, {1.0F, 10.0F});
  t.zero_points = own<std::uint8_t>(DType::u8, {1, 2}, {3, 16});
  t.scheme.zero_points = true;
  EXPECT_THAT(decode(t), ElementsAre(0.0F, 2.0F, -10.0F, -90.0F));
  t.g_idx = own<std::int32_t>(DType::i32, {4}, {1, 0, 1, 0});
  t.scheme.act_order = ActOrder::group;
  EXPECT_THAT(decode(t), ElementsAre(-130.0F, 2.0F, -10.0F, 4.0F));
}

TEST(CanonicalForm, GroupIndexOutsideTheGroupsIsRefused) {
  QuantizedTensor t = matrix(1, 2, DType::u8, {1, 2});
  t.codes = own<std::uint8_t>(DType::u8, {2}, {1, 2});
  t.scales = own<float>(DType::f32, {1, 1}, {1.0F});
  t.g_idx = own<std::int32_t>(DType::i32, {2}, {0, 1});
  t.scheme.act_order = ActOrder::group;
  EXPECT_THAT(check_quantized(t).error().what, HasSubstr("g_idx[1] is 1, expected 0 to 0"));
}

TEST(CanonicalForm, OffsetsAreAddedAfterScaling) {
  QuantizedTensor t = matrix(1, 2, DType::u8, {1, 0});
  t.codes = own<std::uint8_t>(DType::u8, {2}, {1, 200});
  t.scales = own<float>(DType::f32, {1, 1}, {0.5F});
  t.offsets = own<float>(DType::f32, {1, 1}, {-3.0F});
  EXPECT_THAT(decode(t), ElementsAre(-2.5F, 97.0F));
}

TEST(CanonicalForm, CodesOfThreeBitsStraddleBytes) {
  QuantizedTensor t = matrix(2, 4, DType::u3, {0, 0});
  // 1 7 2 5 -> bits 001 111 010 101, low first: 0b10111001 0b00001010; then 4 0 6 3.
  t.codes = own<std::uint8_t>(DType::u8, {2, 2}, {0xB9, 0x0A, 0x84, 0x07});
  t.scales = own<float>(DType::f32, {1, 1}, {2.0F});
  EXPECT_THAT(decode(t), ElementsAre(2.0F, 14.0F, 4.0F, 10.0F, 8.0F, 0.0F, 12.0F, 6.0F));
}

TEST(CanonicalForm, BlocksOfScalesMayBeRaggedAtBothEdges) {
  QuantizedTensor t = matrix(3, 3, DType::f8_e4m3, {2, 2});
  t.codes = own<std::uint8_t>(DType::u8, {9}, std::vector<std::uint8_t>(9, 0x38));  // 1.0
  t.scales = own<float>(DType::f32, {2, 2}, {1.0F, 2.0F, 3.0F, 4.0F});
  EXPECT_THAT(decode(t), ElementsAre(1, 1, 2, 1, 1, 2, 3, 3, 4));
}

TEST(CanonicalForm, OneScaleAColumn) {
  QuantizedTensor t = matrix(2, 2, DType::i8, {0, 1});
  t.codes = own<std::int8_t>(DType::i8, {4}, {-128, 127, 1, -1});
  t.scales = own<float>(DType::f32, {1, 2}, {1.0F, 2.0F});
  EXPECT_THAT(decode(t), ElementsAre(-128.0F, 254.0F, 1.0F, -2.0F));
}

TEST(CanonicalForm, PowerOfTwoScalesReachTheirSmallestValue) {
  QuantizedTensor t = matrix(1, 2, DType::f4_e2m1, {1, 32});
  t.codes = own<std::uint8_t>(DType::u8, {1}, {0xF1});  // 0.5, -6
  t.scales = own<std::uint8_t>(DType::f8_e8m0, {1, 1}, {0});
  t.scheme.scale->dtype = DType::f8_e8m0;
  EXPECT_THAT(decode(t), ElementsAre(std::ldexp(1.0F, -128), -6 * std::ldexp(1.0F, -127)));
}

TEST(CanonicalForm, PowerOfTwoScalesReachTheirLargestValueAndNan) {
  QuantizedTensor t = matrix(2, 2, DType::f4_e2m1, {1, 32});
  t.codes = own<std::uint8_t>(DType::u8, {2}, {0x91, 0x91});  // 0.5, -0.5
  t.scales = own<std::uint8_t>(DType::f8_e8m0, {2, 1}, {254, 255});
  t.scheme.scale->dtype = DType::f8_e8m0;
  const std::vector<float> values = decode(t);
  EXPECT_EQ(values[0], std::ldexp(1.0F, 126));
  EXPECT_EQ(values[1], -std::ldexp(1.0F, 126));
  EXPECT_TRUE(std::isnan(values[2]) && std::isnan(values[3]));
}

TEST(CanonicalForm, EveryPartIsCheckedWithBothNumbers) {
  QuantizedTensor t = matrix(2, 64, DType::u4, {1, 32});
  t.codes = own<std::uint8_t>(DType::u8, {63}, std::vector<std::uint8_t>(63));
  EXPECT_THAT(check_quantized(t).error().what, HasSubstr("codes of 63 bytes, expected 64"));
  t.codes = own<std::uint8_t>(DType::u8, {64}, std::vector<std::uint8_t>(64));
  t.scales = own<float>(DType::f32, {3}, {1, 1, 1});
  EXPECT_THAT(check_quantized(t).error().what, HasSubstr("scales of 12 bytes, expected 16"));
  t.scales = own<std::int64_t>(DType::i64, {4}, {1, 1, 1, 1});
  EXPECT_THAT(check_quantized(t).error().what, HasSubstr("scales are i64"));
  t.k = std::int64_t{1} << 50;
  EXPECT_THAT(check_quantized(t).error().what, HasSubstr("expected 1 to 2^40"));
}

}  // namespace
}  // namespace fewbit
