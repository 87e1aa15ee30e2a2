// SPDX-License-Identifier: Apache-2.0
#include "scheme/code_scan.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "core/convert.hpp"

namespace fewbit {
namespace {

constexpr DType types[] = {DType::f8_e4m3, DType::f8_e5m2, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz,
                           DType::f16,     DType::bf16,    DType::f32};

bool is_bad(DType dtype, Bad kind, std::span<const std::byte> element) {
  float value = 0;
  EXPECT_TRUE(convert_to_f32(dtype, element, std::span(&value, 1)));
  return kind == Bad::nan ? std::isnan(value) : !std::isfinite(value);
}

// All codes of 8 and 16 bits; of 32 bits every exponent with the ends of its fractions.
std::vector<std::uint32_t> codes_of(std::size_t width) {
  std::vector<std::uint32_t> codes;
  if (width < 4) {
    for (std::uint32_t code = 0; code < 1U << 8 * width; ++code) codes.push_back(code);
    return codes;
  }
  for (std::uint32_t top = 0; top < 512; ++top) {
    for (const std::uint32_t fraction : {0U, 1U, 0x7fffffU}) codes.push_back(top << 23 | fraction);
  }
  return codes;
}

// An element alone among others, at the start, inside and in a tail that fills no word.
TEST(CodeScan, FindsEveryBadCodeWhereverItStands) {
  for (const DType dtype : types) {
    ASSERT_TRUE(has_bad_elements(dtype));
    const auto width = static_cast<std::size_t>(dtype_bits(dtype)) / 8;
    std::vector<std::byte> bytes(width * (4096 / width + 3));
    for (const std::uint32_t code : codes_of(width)) {
      for (const std::size_t at : {std::size_t{0}, std::size_t{5}, bytes.size() / width - 1}) {
        std::byte* const place = bytes.data() + at * width;
        std::memcpy(place, &code, width);
        for (const Bad kind : {Bad::nan_or_infinite, Bad::nan}) {
          const bool bad = is_bad(dtype, kind, {place, width});
          const BadElements found = find_bad_elements(dtype, kind, bytes);
          ASSERT_EQ(found.count, bad ? 1U : 0U) << dtype_name(dtype) << " " << code << " at " << at;
          ASSERT_EQ(found.first, bad ? at : 0U);
        }
        std::memset(place, 0, width);
      }
    }
  }
}

TEST(CodeScan, CountsAllAndNamesTheFirst) {
  std::vector<std::byte> bytes(20000, std::byte{0x7e});
  for (const std::size_t at : {std::size_t{4099}, std::size_t{9000}, std::size_t{19999}}) {
    bytes[at] = std::byte{0xff};
  }
  const BadElements found = find_bad_elements(DType::f8_e4m3, Bad::nan, bytes);
  EXPECT_EQ(found.count, 3U);
  EXPECT_EQ(found.first, 4099U);
  EXPECT_EQ(find_bad_elements(DType::f8_e4m3, Bad::nan, {}).count, 0U);
  EXPECT_FALSE(has_bad_elements(DType::u8));
  EXPECT_FALSE(has_bad_elements(DType::f8_e8m0));
}

}  // namespace
}  // namespace fewbit
