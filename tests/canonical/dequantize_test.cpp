// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "fewbit/quantized.hpp"

namespace fewbit {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

// Borrows `values`, which must outlive the tensor.
template <class T>
Tensor borrow(DType dtype, const std::vector<T>& values) {
  return {.view = {.dtype = dtype,
                   .shape = {static_cast<std::int64_t>(values.size())},
                   .bytes = std::as_bytes(std::span(values)),
                   .device = {}},
          .owner = nullptr};
}

using Bytes = std::vector<std::uint8_t>;

// Row 0: every code in order under scale 1 (0x38); row 1: code 2 (value 1) under 2 (0x40) times
// 0.5.
TEST(Dequantize, Nvfp4DecodesLowNibbleFirstAndScalesByGroupAndTensor) {
  Bytes codes{0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
  codes.insert(codes.end(), 8, 0x22);
  const Bytes scales{0x38, 0x40};
  const auto tensor =
      make_nvfp4(2, 16, borrow(DType::u8, codes), borrow(DType::f8_e4m3, scales), 0.5F);
  ASSERT_TRUE(tensor);
  std::vector<float> out(32);
  ASSERT_TRUE(dequantize_rows(*tensor, 0, out));
  const std::array<float, 8> positive{0, 0.25F, 0.5F, 0.75F, 1, 1.5F, 2, 3};
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(out[i], positive[i]);
    EXPECT_EQ(out[i + 8], -positive[i]);
    EXPECT_EQ(std::signbit(out[i + 8]), true);
  }
  EXPECT_THAT(std::vector(out.begin() + 16, out.end()), testing::Each(1.0F));
}

TEST(Dequantize, Nvfp4TakesAShortLastGroupAndARangeOfRows) {
  const Bytes codes(3 * 9, 0x22);
  const Bytes scales{0x38, 0x40, 0x40, 0x48, 0x48, 0x7f};
  const auto tensor =
      make_nvfp4(3, 18, borrow(DType::u8, codes), borrow(DType::f8_e4m3, scales), 1.0F);
  ASSERT_TRUE(tensor);
  std::vector<float> out(18);
  ASSERT_TRUE(dequantize_rows(*tensor, 1, out));
  EXPECT_EQ(out[15], 2);
  EXPECT_EQ(out[16], 4);
  ASSERT_TRUE(dequantize_rows(*tensor, 2, out));
  EXPECT_EQ(out[15], 4);
  EXPECT_TRUE(std::isnan(out[17]));
}

TEST(Dequantize, PlainValuesAreConvertedAndScaled) {
  const std::vector<std::uint16_t> bf16{0x3f80, 0xc000, 0x4040, 0x0000};  // 1 -2 3 0
  const auto tensor = make_plain(2, 2, borrow(DType::bf16, bf16), 0.5F);
  ASSERT_TRUE(tensor);
  std::vector<float> out(4);
  ASSERT_TRUE(dequantize_rows(*tensor, 0, out));
  EXPECT_THAT(out, ElementsAre(0.5F, -1, 1.5F, 0));
  const std::vector<float> f32{1.0F / 3, 7};
  std::vector<float> same(2);
  ASSERT_TRUE(dequantize_rows(*make_plain(1, 2, borrow(DType::f32, f32)), 0, same));
  EXPECT_THAT(same, ElementsAreArray(f32));
}

TEST(Dequantize, RefusesRowsOutsideTheMatrixAndUnknownSchemes) {
  const std::vector<float> values(6);
  auto tensor = *make_plain(2, 3, borrow(DType::f32, values));
  std::vector<float> out(3);
  EXPECT_THAT(dequantize_rows(tensor, 2, out).error().what,
              HasSubstr("1 rows from row 2, but the matrix has 2"));
  EXPECT_FALSE(dequantize_rows(tensor, -1, out));
  out.resize(4);
  EXPECT_THAT(dequantize_rows(tensor, 0, out).error().what,
              HasSubstr("4 elements are no whole rows of 3"));
  out.resize(3);
  tensor.scheme.weight = DType::i64;
  EXPECT_EQ(dequantize_rows(tensor, 0, out).error().code, ErrorCode::unsupported);
}

TEST(Dequantize, WrappingChecksEverySize) {
  const Bytes codes(8);
  const Bytes scales(1);
  const auto nvfp4 = [&](std::int64_t n, std::int64_t k) {
    return make_nvfp4(n, k, borrow(DType::u8, codes), borrow(DType::u8, scales), 1.0F);
  };
  EXPECT_TRUE(nvfp4(1, 16));
  EXPECT_THAT(nvfp4(2, 16).error().what, HasSubstr("codes of 8 bytes, expected 16"));
  EXPECT_THAT(nvfp4(4, 4).error().what, HasSubstr("scales of 1 bytes, expected 4"));
  EXPECT_THAT(nvfp4(1, 15).error().what, HasSubstr("k is 15"));
  EXPECT_THAT(nvfp4(0, 16).error().what, HasSubstr("matrix [0, 16]"));
  EXPECT_FALSE(nvfp4(std::int64_t{1} << 40, std::int64_t{1} << 40));
  EXPECT_THAT(make_plain(1, 8, borrow(DType::u8, codes)).error().what,
              HasSubstr("values are u8, expected f32, f16 or bf16"));
  EXPECT_THAT(make_plain(2, 2, borrow(DType::f32, std::vector<float>(3))).error().what,
              HasSubstr("values of 12 bytes, expected 16"));
}

}  // namespace
}  // namespace fewbit
