// SPDX-License-Identifier: Apache-2.0
// Judging FP8 codes as SGLang's tests mean to.
#include "quantize/sglang_fp8.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <vector>

namespace fewbit::sglang {
namespace {

using testing::HasSubstr;

TensorView view(const std::vector<std::uint8_t>& codes) {
  return {.dtype = DType::f8_e4m3,
          .shape = {static_cast<std::int64_t>(codes.size())},
          .bytes = std::as_bytes(std::span(codes)),
          .device = {}};
}

Fp8Difference difference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  const auto found = fp8_difference(view(a), view(b));
  EXPECT_TRUE(found) << found.error().message();
  return found ? *found : Fp8Difference{};
}

TEST(SglangFp8Difference, ASignThatIsLostIsFound) {
  // 2^-9 and -2^-9, the smallest there are: two steps, and 1 and -1.
  const Fp8Difference found = difference({0x01, 0x38, 0x38}, {0x81, 0xb8, 0x38});
  EXPECT_EQ(found.signs, 2);
  EXPECT_EQ(found.large, 2);
  EXPECT_FALSE(found.close());
}

TEST(SglangFp8Difference, BothZerosAreOneValue) {
  const Fp8Difference found = difference({0x00, 0x80, 0x00}, {0x80, 0x00, 0x01});
  EXPECT_EQ(found.signs, 0);
  EXPECT_EQ(found.steps, 1);
  EXPECT_EQ(found.large, 0);
}

TEST(SglangFp8Difference, CountsStepsBetweenNeighbouringValues) {
  for (int code = 0; code < 0x7e; ++code) {
    const auto at = static_cast<std::uint8_t>(code);
    for (const int sign : {0, 0x80}) {
      const auto next = static_cast<std::uint8_t>(sign + code + 1);
      const Fp8Difference found = difference({static_cast<std::uint8_t>(sign + at)}, {next});
      EXPECT_EQ(found.steps, 1) << code;
      EXPECT_EQ(found.large, 0) << code;
    }
  }
}

TEST(SglangFp8Difference, CloseAllowsFewStepsAndNoMissingNumber) {
  std::vector<std::uint8_t> a(401, 0x38);
  std::vector<std::uint8_t> b = a;
  b[0] = b[1] = 0x39;
  EXPECT_TRUE(difference(a, b).close());
  b[2] = 0x39;  // 3 of 401
  EXPECT_FALSE(difference(a, b).close());
  b = a;
  b[0] = 0x7f;
  EXPECT_EQ(difference(a, b).large, 1);
  a[0] = 0xff;
  EXPECT_TRUE(difference(a, b).close());
}

TEST(SglangFp8Difference, OtherTypesAndShapesAreRefused) {
  const std::vector<std::uint8_t> codes(4);
  TensorView other = view(codes);
  other.shape = {2, 2};
  EXPECT_THAT(fp8_difference(view(codes), other).error().what,
              HasSubstr("[4] (4 bytes) and [2, 2]"));
  other.dtype = DType::u8;
  EXPECT_THAT(fp8_difference(view(codes), other).error().what, HasSubstr("f8_e4m3 and u8"));
}

}  // namespace
}  // namespace fewbit::sglang
