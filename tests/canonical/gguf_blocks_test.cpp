// SPDX-License-Identifier: Apache-2.0
#include "canonical/gguf_blocks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace fewbit {
namespace {

using testing::HasSubstr;
using Block = std::vector<std::uint8_t>;

const GgufType& type_named(std::string_view name) {
  const GgufType* type = find_gguf_type(name);
  EXPECT_NE(type, nullptr) << name;
  return *type;
}

std::vector<float> decode(const GgufType& type, const Block& block) {
  std::vector<float> out(block.size() / static_cast<std::size_t>(type.bytes) *
                         static_cast<std::size_t>(type.elements));
  const auto result = decode_gguf_blocks(type, std::as_bytes(std::span(block)), out);
  EXPECT_TRUE(result) << (result ? "" : result.error().message());
  return out;
}

constexpr std::uint8_t one_low = 0x00;  // f16 1.0 is 0x3c00
constexpr std::uint8_t one_high = 0x3c;

// Where some bits of element i are, for all i.
struct Bits {
  std::function<int(int)> byte;
  std::function<int(int)> shift;
  int width;
};

// A type whose scales can be made 1, so that the decoded value is a function of the code.
struct CodeCase {
  std::string_view type;
  std::function<void(Block&)> unit_scales;
  std::vector<Bits> parts;  // of the code, lowest first
  std::function<float(int)> value;
};

void set_one(Block& block, std::size_t at) {
  block[at] = one_low;
  block[at + 1] = one_high;
}

int half_nibble_shift(int i) { return i % 32 / 16 * 4; }
int minus_8(int code) { return code - 8; }

std::vector<CodeCase> code_cases() {
  const auto nibble = [](int from) {
    return Bits{[from](int i) { return from + i % 16; }, half_nibble_shift, 4};
  };
  const auto k_nibble = [](int from) {
    return Bits{[from](int i) { return from + i / 64 * 32 + i % 32; },
                [](int i) { return i / 32 % 2 * 4; }, 4};
  };
  const auto k_pair = [](int from) {
    return Bits{[from](int i) { return from + i / 128 * 32 + i % 32; },
                [](int i) { return i / 32 % 4 * 2; }, 2};
  };
  const auto plain_pair = Bits{[](int i) { return 2 + i / 4; }, [](int i) { return i % 4 * 2; }, 2};
  const auto fifth = [](int from) {
    return Bits{[from](int i) { return from + i / 8; }, [](int i) { return i % 8; }, 1};
  };
  const auto d_first = [](Block& b) { set_one(b, 0); };
  const auto as_is = [](int code) { return static_cast<float>(code); };
  const auto less = [](int offset) {
    return [offset](int code) { return static_cast<float>(code - offset); };
  };
  // Q4_K and Q5_K: all scales 1, all minimums 0.
  const auto k_scales = [](Block& b) {
    set_one(b, 0);
    std::fill_n(b.begin() + 4, 4, std::uint8_t{1});
    std::fill_n(b.begin() + 12, 4, std::uint8_t{1});
  };
  return {
      {"Q4_0", d_first, {nibble(2)}, [](int c) { return static_cast<float>(minus_8(c)); }},
      {"Q4_1", d_first, {nibble(4)}, as_is},
      {"Q5_0", d_first, {nibble(6), fifth(2)}, less(16)},
      {"Q5_1", d_first, {nibble(8), fifth(4)}, as_is},
      {"Q8_0",
       d_first,
       {{[](int i) { return 2 + i; }, [](int) { return 0; }, 8}},
       [](int c) { return static_cast<float>(c < 128 ? c : c - 256); }},
      {"Q2_K",
       [](Block& b) {
         std::fill_n(b.begin(), 16, std::uint8_t{1});
         set_one(b, 80);
       },
       {k_pair(16)},
       as_is},
      {"Q3_K",
       [](Block& b) {  // 6-bit scales of 33: low nibble 1, high pair 2
         std::fill_n(b.begin() + 96, 8, std::uint8_t{0x11});
         std::fill_n(b.begin() + 104, 4, std::uint8_t{0xAA});
         set_one(b, 108);
       },
       {k_pair(32), {[](int i) { return i % 32; }, [](int i) { return i / 32; }, 1}},
       less(4)},
      {"Q4_K", k_scales, {k_nibble(16)}, as_is},
      {"Q5_K",
       k_scales,
       {k_nibble(48), {[](int i) { return 16 + i % 32; }, [](int i) { return i / 32; }, 1}},
       as_is},
      {"Q6_K",
       [](Block& b) {
         std::fill_n(b.begin() + 192, 16, std::uint8_t{1});
         set_one(b, 208);
       },
       {{[](int i) { return i / 128 * 64 + i % 64; }, [](int i) { return i / 64 % 2 * 4; }, 4},
        {[](int i) { return 128 + i / 128 * 32 + i % 32; }, [](int i) { return i / 32 % 4 * 2; },
         2}},
       less(32)},
      {"Q1_0",
       d_first,
       {{[](int i) { return 2 + i / 8; }, [](int i) { return i % 8; }, 1}},
       [](int c) { return c == 1 ? 1.0F : -1.0F; }},
      {"Q2_0", d_first, {plain_pair}, less(1)},
      {"Q2_0 (128)", d_first, {plain_pair}, less(1)},
      {"PQ2_0", d_first, {plain_pair}, less(1)},
      {"TQ2_0", [](Block& b) { set_one(b, 64); }, {k_pair(0)}, less(1)},
  };
}

// Each code, put where the format says, changes its own element and no other.
TEST(GgufBlocks, EveryElementIsReadFromItsOwnBits) {
  for (const CodeCase& c : code_cases()) {
    const GgufType& type = type_named(c.type);
    int width = 0;
    for (const Bits& part : c.parts) width += part.width;
    Block base(static_cast<std::size_t>(type.bytes), 0);
    c.unit_scales(base);
    for (int i = 0; i < type.elements; ++i) {
      for (const int code : {1, 2, (1 << width) / 2, (1 << width) - 1}) {
        if (code >= 1 << width) continue;
        Block block = base;
        int rest = code;
        for (const Bits& part : c.parts) {
          auto& byte = block[static_cast<std::size_t>(part.byte(i))];
          byte =
              static_cast<std::uint8_t>(byte | (rest & ((1 << part.width) - 1)) << part.shift(i));
          rest >>= part.width;
        }
        std::vector<float> want(static_cast<std::size_t>(type.elements), c.value(0));
        want[static_cast<std::size_t>(i)] = c.value(code);
        ASSERT_EQ(decode(type, block), want) << c.type << " element " << i << " code " << code;
      }
    }
  }
}

TEST(GgufBlocks, SixBitScalesAndMinimumsOfQ4KAndQ5KAreUnpackedPerGroup) {
  const std::array<int, 8> scales = {1, 63, 16, 40, 5, 62, 48, 33};
  const std::array<int, 8> mins = {63, 2, 31, 17, 60, 9, 32, 47};
  std::array<int, 12> packed{};
  for (std::size_t j = 0; j < 4; ++j) {
    packed[j] = scales[j] | (scales[j + 4] >> 4) << 6;
    packed[j + 4] = mins[j] | (mins[j + 4] >> 4) << 6;
    packed[j + 8] = (scales[j + 4] & 15) | (mins[j + 4] & 15) << 4;
  }
  for (const std::string_view name : {"Q4_K", "Q5_K"}) {
    const GgufType& type = type_named(name);
    Block block(static_cast<std::size_t>(type.bytes), 0);
    set_one(block, 0);
    set_one(block, 2);
    for (std::size_t j = 0; j < 12; ++j) block[4 + j] = static_cast<std::uint8_t>(packed[j]);
    std::fill(block.end() - 128, block.end(), std::uint8_t{0x33});
    const std::vector<float> out = decode(type, block);
    for (std::size_t i = 0; i < 256; ++i) {
      EXPECT_EQ(out[i], static_cast<float>(3 * scales[i / 32] - mins[i / 32])) << name << " " << i;
    }
  }
}

TEST(GgufBlocks, SixBitScalesOfQ3KAreUnpackedPerGroup) {
  Block block(110, 0);
  set_one(block, 108);
  std::array<int, 16> scales{};
  for (int j = 0; j < 16; ++j) {
    const int scale = (j * 29 + 7) % 64;
    scales[static_cast<std::size_t>(j)] = scale;
    auto& low = block[static_cast<std::size_t>(96 + j % 8)];
    auto& high = block[static_cast<std::size_t>(104 + j % 4)];
    low = static_cast<std::uint8_t>(low | (scale & 15) << (j < 8 ? 0 : 4));
    high = static_cast<std::uint8_t>(high | (scale >> 4) << 2 * (j / 4));
  }
  const std::vector<float> out = decode(type_named("Q3_K"), block);
  for (std::size_t i = 0; i < 256; ++i) {
    EXPECT_EQ(out[i], static_cast<float>((scales[i / 16] - 32) * -4)) << i;
  }
}

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

// Byte ceil(n * 256 / 243) of the integer n with digits t0 t1 t2 t3 t4 in base 3.
std::uint8_t digits_byte(const std::array<int, 5>& digits) {
  int number = 0;
  for (const int digit : digits) number = 3 * number + digit;
  return static_cast<std::uint8_t>(std::ceil(number * 256.0 / 243.0));
}

struct Run {
  std::size_t byte, bytes, digits;
};

// Fills one byte of a run at a time with all 243 combinations; digit n of byte m is element
// n * bytes + m of the run.
void check_digits(std::string_view name, std::size_t scale_at, const std::vector<Run>& runs) {
  const GgufType& type = type_named(name);
  std::size_t first = 0;
  for (const Run& run : runs) {
    for (std::size_t m = 0; m < run.bytes; ++m) {
      for (int number = 0; number < 243; number += 7) {
        const std::array<int, 5> digits = {number / 81, number / 27 % 3, number / 9 % 3,
                                           number / 3 % 3, number % 3};
        Block block(static_cast<std::size_t>(type.bytes), 0);
        set_one(block, scale_at);
        block[run.byte + m] = digits_byte(digits);
        std::vector<float> want(static_cast<std::size_t>(type.elements), -1);
        for (std::size_t n = 0; n < run.digits; ++n) {
          want[first + n * run.bytes + m] = static_cast<float>(digits[n] - 1);
        }
        ASSERT_EQ(decode(type, block), want) << name << " byte " << run.byte + m;
      }
    }
    first += run.bytes * run.digits;
  }
  EXPECT_EQ(first, static_cast<std::size_t>(type.elements));
}

TEST(GgufBlocks, Base3DigitsAreReadRunByRun) {
  check_digits("TQ1_0", 52, {{0, 32, 5}, {32, 16, 5}, {48, 4, 4}});
  check_digits("PTQ1_0", 26, {{0, 16, 5}, {16, 8, 5}, {24, 2, 4}});
}

// A block of 128 is two blocks of 64 that repeat its scale.
TEST(GgufBlocks, Q2_0OfBothExtentsAgree) {
  Block wide = {0x66, 0x2e};
  for (int j = 0; j < 32; ++j) wide.push_back(static_cast<std::uint8_t>(37 * j + 11));
  Block halves = {0x66, 0x2e};
  halves.insert(halves.end(), wide.begin() + 2, wide.begin() + 18);
  halves.insert(halves.end(), {0x66, 0x2e});
  halves.insert(halves.end(), wide.begin() + 18, wide.end());
  EXPECT_EQ(decode(*find_gguf_type(42, 128), wide), decode(*find_gguf_type(42, 64), halves));
}

TEST(GgufBlocks, NumbersOfOneElementAreConverted) {
  const Block i16 = {0xFF, 0x7F, 0x00, 0x80};
  EXPECT_EQ(decode(type_named("I16"), i16), (std::vector<float>{32767, -32768}));
  EXPECT_EQ(decode(type_named("I8"), {0x80, 0x7F}), (std::vector<float>{-128, 127}));
  EXPECT_EQ(decode(type_named("I32"), {1, 0, 0, 1}), (std::vector<float>{16777216}));  // to even
  EXPECT_EQ(decode(type_named("I64"), Block(8, 0xFF)), (std::vector<float>{-1}));
  EXPECT_EQ(decode(type_named("BF16"), {0x80, 0xBF}), (std::vector<float>{-1}));
  EXPECT_EQ(decode(type_named("F64"), {0, 0, 0, 0, 0, 0, 0xF8, 0x3F}), (std::vector<float>{1.5}));
  Block q8_k(292, 3);
  q8_k[0] = q8_k[1] = q8_k[2] = 0;
  q8_k[3] = 0x40;  // f32 2.0
  EXPECT_EQ(decode(type_named("Q8_K"), q8_k), std::vector<float>(256, 6));
}

TEST(GgufBlocks, EveryTypeDecodesOrSaysWhyNot) {
  int refused = 0;
  for (const GgufType& type : gguf_types()) {
    const std::string refusal = gguf_decode_refusal(type);
    const Block block(static_cast<std::size_t>(type.bytes), 0);
    std::vector<float> out(static_cast<std::size_t>(type.elements));
    const auto result = decode_gguf_blocks(type, std::as_bytes(std::span(block)), out);
    EXPECT_EQ(result.has_value(), refusal.empty()) << type.name;
    if (refusal.empty()) continue;
    ++refused;
    EXPECT_EQ(result.error().code, ErrorCode::unsupported);
    EXPECT_THAT(result.error().what, HasSubstr(std::string(type.name)));
  }
  EXPECT_EQ(refused, 8);  // removed ids
}

TEST(GgufBlocks, SizesThatAreNoWholeBlocksAreRefusedWithTheNumbers) {
  const Block block(36, 0);
  std::vector<float> out(63);
  for (const std::size_t bytes : {35U, 36U}) {
    const auto result =
        decode_gguf_blocks(type_named("Q4_0"), std::as_bytes(std::span(block)).first(bytes), out);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(result.error().what, HasSubstr(std::to_string(bytes) + " bytes and 63 elements"));
    EXPECT_THAT(result.error().what, HasSubstr("Q4_0 has 18 bytes and 32 elements"));
  }
}

TEST(GgufTypes, AreFoundByIdExtentAndName) {
  EXPECT_EQ(gguf_types_of(42).size(), 2U);
  EXPECT_EQ(gguf_types_of(42).front().bytes, 18);
  EXPECT_EQ(find_gguf_type(42, 128)->bytes, 34);
  EXPECT_EQ(find_gguf_type(40, 64)->name, "NVFP4");
  EXPECT_TRUE(gguf_types_of(99).empty());
  EXPECT_TRUE(gguf_types_of(-1).empty());
  EXPECT_TRUE(gguf_types_of(1000).empty());
  EXPECT_EQ(find_gguf_type("Q4_K")->id, 12);
  EXPECT_EQ(find_gguf_type("q4_k"), nullptr);
  EXPECT_EQ(gguf_type_name(12), "Q4_K");
  EXPECT_EQ(gguf_type_name(99), "type 99");
}

}  // namespace
}  // namespace fewbit
