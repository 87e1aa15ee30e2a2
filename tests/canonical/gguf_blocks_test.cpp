// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "canonical/gguf_block.hpp"

namespace fewbit {
namespace {

using testing::HasSubstr;
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
