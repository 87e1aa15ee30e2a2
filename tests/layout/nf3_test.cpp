// SPDX-License-Identifier: Apache-2.0
// NF3: worked values of the engine's packing, scales against their meaning, refused input.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "layout/nf3_packed.hpp"
#include "layout/nf3_scale.hpp"
#include "layout/pack.hpp"
#include "layout/prepare_nf3.hpp"
#include "layout/scale_grid.hpp"

namespace fewbit {
namespace {

using ::testing::HasSubstr;

TEST(Nf3PackedTest, HasTheKnownWords) {
  constexpr Dims d{.n = 256, .k = 64};
  std::vector<std::uint8_t> codes(256 * 64);
  for (std::int64_t n = 0; n < d.n; ++n) {
    for (std::int64_t k = 0; k < d.k; ++k) {
      codes[static_cast<std::size_t>(n * d.k + k)] =
          static_cast<std::uint8_t>((n + n / 8 + 5 * k) & 7);
    }
  }
  std::vector<std::byte> words(static_cast<std::size_t>(Nf3Packed::bytes(d)));
  pack_nf3(d, 128, codes, words);
  EXPECT_EQ(Nf3Packed::unit(d, 128, 90, 25), 104);
  EXPECT_EQ(read_bits<32>(words, {.byte = 312 * 4, .bit = 0}), 0x994433eeU);
  EXPECT_EQ(read_bits<32>(words, {.byte = 313 * 4, .bit = 0}), 0x994433eeU);
  EXPECT_EQ(read_bits<32>(words, {.byte = 314 * 4, .bit = 0}), 0xaaf5550aU);
  std::vector<std::uint8_t> back(codes.size());
  unpack_nf3(d, 128, words, back);
  EXPECT_EQ(back, codes);
}

// Any number of columns of a thread block, k down to one group.
TEST(Nf3PackedTest, PackingGivesThePlacesOfTheClosedForm) {
  std::mt19937 random(3);
  for (const std::int64_t tile_n : {64, 128, 192, 256}) {
    for (const std::int64_t k : {32, 64, 96, 160, 512, 544}) {
      const Dims d{.n = 2 * tile_n, .k = k};
      std::vector<std::uint8_t> codes(static_cast<std::size_t>(d.n * d.k));
      for (auto& code : codes) code = random() & 7U;
      std::vector<std::byte> words(static_cast<std::size_t>(Nf3Packed::bytes(d)), std::byte{0xa5});
      pack_nf3(d, tile_n, codes, words);
      std::vector<std::uint8_t> back(codes.size());
      unpack_nf3(d, tile_n, words, back);
      ASSERT_EQ(back, codes) << tile_n << " " << k;
    }
  }
}

TEST(Nf3PackedTest, PackingGivesTheClosedFormForRandomShapes) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 150; ++i) {
    const std::int64_t tile_n = 64 * static_cast<std::int64_t>(1 + random() % 4);
    const Dims d{.n = tile_n * static_cast<std::int64_t>(1 + random() % 3),
                 .k = 32 * static_cast<std::int64_t>(1 + random() % 20)};
    std::vector<std::uint8_t> codes(static_cast<std::size_t>(d.n * d.k));
    for (auto& code : codes) code = static_cast<std::uint8_t>(random() % 8);
    std::vector<std::byte> words(static_cast<std::size_t>(Nf3Packed::bytes(d)) + 8,
                                 std::byte{0xa5});
    const std::size_t bytes = words.size() - 8;
    pack_nf3(d, tile_n, codes, std::span(words).first(bytes));
    std::vector<std::byte> expected(words.size(), std::byte{0xa5});
    for (std::int64_t n = 0; n < d.n; ++n) {
      for (std::int64_t k = 0; k < d.k; ++k) {
        const unsigned code = codes[static_cast<std::size_t>(n * d.k + k)];
        write_bits<2>(expected, Nf3Packed::low_place(d, tile_n, n, k), code & 3U);
        write_bits<1>(expected, Nf3Packed::high_place(d, tile_n, n, k), code >> 2U);
      }
    }
    ASSERT_EQ(words, expected) << d.n << " x " << d.k << " tile " << tile_n;
    std::vector<std::uint8_t> back(codes.size());
    unpack_nf3(d, tile_n, std::span<const std::byte>(words).first(bytes), back);
    ASSERT_EQ(back, codes);
  }
}

TEST(Nf3ScaleTest, TruncatesAsTheEngineDoes) {
  EXPECT_EQ(nf3_scale_byte(0.5F, Nf3ScaleRounding::truncate), 0x50);
  EXPECT_EQ(nf3_scale_byte(0x1p-11F, Nf3ScaleRounding::truncate), 0x08);
  EXPECT_EQ(nf3_scale_byte(0.0123F, Nf3ScaleRounding::truncate), 0x24);
  EXPECT_EQ(nf3_scale_byte(31.9F, Nf3ScaleRounding::truncate), 0x7f);
  EXPECT_EQ(nf3_scale_byte(31.995F, Nf3ScaleRounding::truncate), 0x80);
}

TEST(Nf3ScaleTest, NearestIsTheNearestOfAllBytes) {
  for (float scale = nf3_smallest_scale; scale < nf3_scale_end; scale *= 1.0113F) {
    double best = std::numeric_limits<double>::infinity();
    for (int byte = 0x08; byte < 0x80; ++byte) {
      const double value = std::ldexp(1.0 + (byte & 7) / 8.0, (byte >> 3) - 11);
      EXPECT_EQ(nf3_scale_byte_value(static_cast<std::uint8_t>(byte)), value);
      best = std::min(best, std::abs(value - double{scale}));
    }
    const std::uint8_t byte = nf3_scale_byte(scale, Nf3ScaleRounding::nearest);
    EXPECT_LT(byte, 0x80) << scale;
    EXPECT_EQ(std::abs(double{nf3_scale_byte_value(byte)} - double{scale}), best) << scale;
  }
  EXPECT_EQ(nf3_scale_byte(31.995F, Nf3ScaleRounding::nearest), 0x7f);
  EXPECT_EQ(nf3_scale_byte(0.0F, Nf3ScaleRounding::nearest), 0);
}

class PrepareNf3Test : public ::testing::Test {
 protected:
  PrepareNf3Test() {
    input_.hidden_size = 128;
    input_.intermediate_size = 32;
    fill(w13_, {.n = 64, .k = 128}, input_.w13);
    fill(w2_, {.n = 128, .k = 32}, input_.w2);
  }
  struct Memory {
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
  };
  static void fill(Memory& memory, Dims dims, Nf3Matrix& matrix) {
    for (std::int64_t i = 0; i < 2 * dims.n * dims.k; ++i) {
      memory.codes.push_back(static_cast<std::uint8_t>(i * 5 % 8));
      if (i % 32 == 0) memory.scales.push_back(0.01F * static_cast<float>(1 + i / 32 % 300));
    }
    matrix.codes = {.dtype = DType::u8,
                    .shape = {2, dims.n, dims.k},
                    .bytes = std::as_bytes(std::span(memory.codes)),
                    .device = {}};
    matrix.scales = {.dtype = DType::f32,
                     .shape = {2, dims.n, dims.k / 32},
                     .bytes = std::as_bytes(std::span(memory.scales)),
                     .device = {}};
    matrix.tile_n = 64;
  }
  std::string refusal() const {
    const auto result = prepare_nf3(input_);
    return result ? "" : result.error().message();
  }
  // Of both experts.
  static std::vector<std::uint8_t> unpacked(const Nf3MatrixResult& matrix) {
    std::vector<std::uint8_t> codes(64 * 128 * (matrix.scales.view.shape[2] == 64 ? 2 : 1));
    for (std::size_t e = 0; e < 2; ++e) {
      const auto of_expert = std::span(codes).subspan(e * codes.size() / 2, codes.size() / 2);
      const auto done = unpack_nf3(matrix, static_cast<std::int64_t>(e), of_expert);
      EXPECT_TRUE(done) << done.error().message();
    }
    return codes;
  }
  Nf3Input input_;
  Memory w13_;
  Memory w2_;
};

TEST_F(PrepareNf3Test, EveryCodeAndScaleIsThere) {
  const auto result = prepare_nf3(input_);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(unpacked(result->w13), w13_.codes);
  // w2 has one group, so the columns of its scales are in the other order.
  unpack<SingleByteScales>({.n = 128, .k = 1}, result->w2.scales.view.bytes,
                           [&](std::int64_t n, std::int64_t k, std::uint64_t byte) {
                             const float scale = w2_.scales[static_cast<std::size_t>(n + k)];
                             EXPECT_EQ(byte, nf3_scale_byte(scale, Nf3ScaleRounding::nearest));
                           });
}

// Words for another number of columns are other words: what was prepared says which it is for, and
// is read with that alone.
TEST_F(PrepareNf3Test, WordsRememberTheirTile) {
  std::mt19937 random(4);
  for (auto& code : w2_.codes) code = random() & 7U;
  const auto narrow = prepare_nf3(input_);
  input_.w2.tile_n = 128;
  const auto wide = prepare_nf3(input_);
  ASSERT_TRUE(narrow && wide);
  EXPECT_EQ(narrow->w2.tile_n, 64);
  EXPECT_EQ(wide->w2.tile_n, 128);
  EXPECT_FALSE(std::ranges::equal(narrow->w2.words.view.bytes, wide->w2.words.view.bytes));
  EXPECT_EQ(unpacked(narrow->w2), w2_.codes);
  EXPECT_EQ(unpacked(wide->w2), w2_.codes);
  std::vector<std::uint8_t> codes(5);
  EXPECT_EQ(unpack_nf3(wide->w2, 0, codes).error().message(), "codes: 5, expected 4096");
  EXPECT_EQ(unpack_nf3(wide->w2, 2, codes).error().message(), "expert: 2 of 2");
}

TEST_F(PrepareNf3Test, RefusesWithNumbers) {
  w13_.codes[64 * 128 + 130] = 9;
  EXPECT_EQ(refusal(), "w13 codes: expert 1 row 1 column 2 is 9, expected 0 to 7");
  w13_.codes[64 * 128 + 130] = 0;
  w2_.scales[3] = std::nanf("");
  EXPECT_THAT(refusal(),
              HasSubstr("w2 scales: expert 0 row 3 column 0 has nan, expected below 32"));
  w2_.scales[3] = 1.0F;
  input_.w13.tile_n = 96;
  EXPECT_EQ(refusal(), "w13 tile_n: 96, expected a multiple of 64 that divides n 64");
  input_.w13.tile_n = 64;
  input_.w2.scales.shape = {2, 128, 2};
  EXPECT_THAT(refusal(), HasSubstr("shape [2, 128, 2], expected [2, 128, 1]"));
  input_.activation_dtype = DType::f16;
  EXPECT_EQ(refusal(), "activation dtype: f16, NF3 kernels have bf16 only");
}

TEST_F(PrepareNf3Test, CountsScalesThatItRaises) {
  w13_.scales[0] = 0x1p-12F;
  w13_.scales[1] = -1.0F;
  w13_.scales[2] = 0.0F;
  const auto result = prepare_nf3(input_);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->w13.raised_scales, 2);
  EXPECT_EQ(result->w13.negative_scales, 1);
}

}  // namespace
}  // namespace fewbit
