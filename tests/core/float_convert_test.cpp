// SPDX-License-Identifier: Apache-2.0
// Every signed float format against a reference in double: values by the formula of the format, the
// nearest one found by search.
#include "core/float_convert.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

namespace fewbit {
namespace {

using Code = std::uint32_t;

// What the codes above the finite ones mean.
enum class Specials {
  ieee,      // exponent field all ones: infinity, NaN
  one_nan,   // magnitude all ones is NaN
  zero_nan,  // the code of -0 is NaN, zero has no sign
  none,      // all codes are finite
};
enum class Overflow { special, saturate };
enum class ZeroSign { kept, dropped };

struct Format {
  std::string name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Specials specials;
  Overflow overflow;
  ZeroSign zero_sign;
  std::function<float(Code)> decode;
  std::function<Code(float)> encode;

  int magnitude_bits() const { return exponent_bits + mantissa_bits; }
  Code magnitudes() const { return Code{1} << magnitude_bits(); }
  Code finite_magnitudes() const {
    if (specials == Specials::ieee) return magnitudes() - (Code{1} << mantissa_bits);
    return specials == Specials::one_nan ? magnitudes() - 1 : magnitudes();
  }
  // Of a finite magnitude or of the one that would follow the largest.
  double value(Code magnitude) const {
    const int exponent = static_cast<int>(magnitude >> mantissa_bits);
    const double fraction = magnitude & ((Code{1} << mantissa_bits) - 1);
    const double unit = std::ldexp(1.0, -mantissa_bits);
    if (exponent == 0) return std::ldexp(fraction * unit, 1 - bias);
    return std::ldexp(1.0 + fraction * unit, exponent - bias);
  }
  bool is_nan(Code code) const {
    const Code magnitude = code % magnitudes();
    switch (specials) {
      case Specials::ieee:
        return magnitude > finite_magnitudes();
      case Specials::one_nan:
        return magnitude == magnitudes() - 1;
      case Specials::zero_nan:
        return code == magnitudes();
      case Specials::none:
        return false;
    }
    return false;
  }
};

void PrintTo(const Format& format, std::ostream* out) {  // NOLINT(readability-identifier-naming)
  *out << format.name;
}

// The expected code of a number that is not NaN.
Code expected_code(const Format& format, const std::vector<double>& values, float x) {
  const double magnitude = std::fabs(static_cast<double>(x));
  // values ends with the value after the largest finite one; beyond it nothing changes.
  const double clamped = std::min(magnitude, values.back());
  const auto upper = std::lower_bound(values.begin(), values.end(), clamped);
  Code code = static_cast<Code>(upper - values.begin());
  if (code > 0) {
    const double up = values[code] - clamped;
    const double down = clamped - values[code - 1];
    if (down < up || (down == up && code % 2 == 1)) --code;
  }
  const Code finite = format.finite_magnitudes();
  if (code >= finite) {
    if (format.overflow == Overflow::saturate)
      code = finite - 1;
    else if (format.specials == Specials::zero_nan)
      return format.magnitudes();
    else
      code = finite;  // infinity, or the only NaN
  }
  const bool drop = format.zero_sign == ZeroSign::dropped && code == 0;
  return code + (std::signbit(x) && !drop ? format.magnitudes() : 0);
}

std::vector<double> all_values(const Format& format) {
  std::vector<double> values;
  for (Code m = 0; m <= format.finite_magnitudes(); ++m) values.push_back(format.value(m));
  return values;
}

// Values, midpoints, their f32 neighbours, and a grid over all f32 bit patterns.
std::vector<float> difficult_inputs(const std::vector<double>& values) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> inputs = {infinity, std::numeric_limits<float>::max(),
                               std::numeric_limits<float>::min(),
                               std::numeric_limits<float>::denorm_min()};
  const auto add = [&](double x) {
    const float at = static_cast<float>(x);
    for (const float near : {std::nextafter(at, 0.0F), at, std::nextafter(at, infinity)}) {
      inputs.push_back(near);
    }
  };
  for (std::size_t i = 0; i + 1 < values.size(); ++i) {
    add(values[i]);
    add(0.5 * (values[i] + values[i + 1]));
  }
  add(values.back());
  for (std::uint32_t high = 0; high < 0x7f80U; ++high) {
    for (const std::uint32_t low : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      inputs.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  const std::size_t positive = inputs.size();
  for (std::size_t i = 0; i < positive; ++i) inputs.push_back(-inputs[i]);
  return inputs;
}

// How our functions look to the table: code and float only.
#define FEWBIT_TEST_DECODE(type, function) \
  [](Code code) { return function(static_cast<type>(code)); }
#define FEWBIT_TEST_ENCODE(function) [](float x) { return static_cast<Code>(function(x)); }

std::vector<Format> formats() {
  using U8 = std::uint8_t;
  using U16 = std::uint16_t;
  const auto e4m3 = FEWBIT_TEST_DECODE(U8, f8_e4m3_to_f32);
  const auto e5m2 = FEWBIT_TEST_DECODE(U8, f8_e5m2_to_f32);
  const auto e4m3fnuz = FEWBIT_TEST_DECODE(U8, f8_e4m3fnuz_to_f32);
  const auto e5m2fnuz = FEWBIT_TEST_DECODE(U8, f8_e5m2fnuz_to_f32);
  const auto e2m1 = FEWBIT_TEST_DECODE(U8, f4_e2m1_to_f32);
  const auto special = Overflow::special;
  const auto saturate = Overflow::saturate;
  const auto kept = ZeroSign::kept;
  const auto dropped = ZeroSign::dropped;
  return {
      {"bf16", 8, 7, 127, Specials::ieee, special, kept, FEWBIT_TEST_DECODE(U16, bf16_to_f32),
       FEWBIT_TEST_ENCODE(f32_to_bf16)},
      {"f16", 5, 10, 15, Specials::ieee, special, kept, FEWBIT_TEST_DECODE(U16, f16_to_f32),
       FEWBIT_TEST_ENCODE(f32_to_f16)},
      {"e4m3", 4, 3, 7, Specials::one_nan, special, kept, e4m3, FEWBIT_TEST_ENCODE(f32_to_f8_e4m3)},
      {"e4m3_sat", 4, 3, 7, Specials::one_nan, saturate, kept, e4m3,
       FEWBIT_TEST_ENCODE(f32_to_f8_e4m3_sat)},
      {"e5m2", 5, 2, 15, Specials::ieee, special, kept, e5m2, FEWBIT_TEST_ENCODE(f32_to_f8_e5m2)},
      {"e5m2_sat", 5, 2, 15, Specials::ieee, saturate, kept, e5m2,
       FEWBIT_TEST_ENCODE(f32_to_f8_e5m2_sat)},
      {"e4m3fnuz", 4, 3, 8, Specials::zero_nan, special, dropped, e4m3fnuz,
       FEWBIT_TEST_ENCODE(f32_to_f8_e4m3fnuz)},
      {"e4m3fnuz_sat", 4, 3, 8, Specials::zero_nan, saturate, dropped, e4m3fnuz,
       FEWBIT_TEST_ENCODE(f32_to_f8_e4m3fnuz_sat)},
      {"e5m2fnuz", 5, 2, 16, Specials::zero_nan, special, dropped, e5m2fnuz,
       FEWBIT_TEST_ENCODE(f32_to_f8_e5m2fnuz)},
      {"e5m2fnuz_sat", 5, 2, 16, Specials::zero_nan, saturate, dropped, e5m2fnuz,
       FEWBIT_TEST_ENCODE(f32_to_f8_e5m2fnuz_sat)},
      {"e3m2", 3, 2, 3, Specials::none, saturate, kept, FEWBIT_TEST_DECODE(U8, f6_e3m2_to_f32),
       FEWBIT_TEST_ENCODE(f32_to_f6_e3m2)},
      {"e2m3", 2, 3, 1, Specials::none, saturate, kept, FEWBIT_TEST_DECODE(U8, f6_e2m3_to_f32),
       FEWBIT_TEST_ENCODE(f32_to_f6_e2m3)},
      {"e2m1", 2, 1, 1, Specials::none, saturate, dropped, e2m1,
       FEWBIT_TEST_ENCODE(f32_to_f4_e2m1)},
      {"e2m1_signed_zero", 2, 1, 1, Specials::none, saturate, kept, e2m1,
       FEWBIT_TEST_ENCODE(f32_to_f4_e2m1_signed_zero)},
  };
}
#undef FEWBIT_TEST_DECODE
#undef FEWBIT_TEST_ENCODE

class FloatFormat : public testing::TestWithParam<Format> {};

TEST_P(FloatFormat, DecodesEveryCodeToTheValueOfItsFormula) {
  const Format& format = GetParam();
  for (Code code = 0; code < 2 * format.magnitudes(); ++code) {
    const float value = format.decode(code);
    if (format.is_nan(code)) {
      EXPECT_TRUE(std::isnan(value)) << "code " << code;
      continue;
    }
    const Code magnitude = code % format.magnitudes();
    const bool infinite = magnitude >= format.finite_magnitudes();
    const double expected =
        infinite ? std::numeric_limits<double>::infinity() : format.value(magnitude);
    EXPECT_EQ(std::fabs(static_cast<double>(value)), expected) << "code " << code;
    EXPECT_EQ(std::signbit(value), code >= format.magnitudes()) << "code " << code;
  }
}

TEST_P(FloatFormat, EncodesToTheNearestCodeAndTiesToEven) {
  const Format& format = GetParam();
  const std::vector<double> values = all_values(format);
  for (const float x : difficult_inputs(values)) {
    ASSERT_EQ(format.encode(x), expected_code(format, values, x))
        << x << " bits " << std::hex << std::bit_cast<std::uint32_t>(x);
  }
}

TEST_P(FloatFormat, EncodesNanToNanOrSaturates) {
  const Format& format = GetParam();
  for (const std::uint32_t bits :
       {0x7f800001U, 0x7f801fffU, 0x7fc00000U, 0x7fffffffU, 0xff800001U, 0xffffffffU}) {
    const Code code = format.encode(std::bit_cast<float>(bits));
    if (format.specials == Specials::none) {
      const Code sign = bits >> 31 != 0 ? format.magnitudes() : 0;
      EXPECT_EQ(code, sign + format.magnitudes() - 1) << std::hex << bits;
    } else {
      EXPECT_TRUE(format.is_nan(code)) << std::hex << bits;
    }
  }
}

TEST_P(FloatFormat, EncodingADecodedCodeGivesItBack) {
  const Format& format = GetParam();
  for (Code code = 0; code < 2 * format.magnitudes(); ++code) {
    const Code again = format.encode(format.decode(code));
    const bool lost_sign = format.zero_sign == ZeroSign::dropped && code == format.magnitudes() &&
                           !format.is_nan(code);
    const bool saturated_infinity =
        format.overflow == Overflow::saturate && std::isinf(format.decode(code));
    if (format.is_nan(code)) {
      EXPECT_TRUE(format.is_nan(again)) << "code " << code;
    } else if (saturated_infinity) {
      EXPECT_EQ(again, code - 1);
    } else {
      EXPECT_EQ(again, lost_sign ? 0U : code);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FloatFormat, testing::ValuesIn(formats()),
                         [](const auto& format) { return format.param.name; });

}  // namespace
}  // namespace fewbit
