// SPDX-License-Identifier: Apache-2.0
// Marlin's layouts against worked values of the engines' repacking.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "core/float_convert.hpp"
#include "layout/awq_words.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/column_words.hpp"
#include "layout/element_mover.hpp"
#include "layout/gptq_words.hpp"
#include "layout/layout_properties.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_act8_4bit.hpp"
#include "layout/marlin_act8_8bit.hpp"
#include "layout/marlin_codes.hpp"
#include "layout/marlin_repack.hpp"
#include "layout/marlin_scales.hpp"
#include "layout/marlin_zeros.hpp"
#include "layout/pack.hpp"
#include "layout/pack_fast_zeros.hpp"
#include "layout/prepare_marlin.hpp"
#include "layout/strip_rows.hpp"

namespace fewbit {
namespace {

using WordLayouts =
    ::testing::Types<GptqWords<2>, GptqWords<4>, GptqWords<8>, AwqWords<4>, AwqWords<8>,
                     ColumnWords<4>, ColumnWords<8>, StripRows<4>, StripRows<8>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Words, LayoutTest, WordLayouts);

using MarlinLayouts = ::testing::Types<
    Marlin8Bit, MarlinAct8Of4Bit, MarlinAct8Of8Bit, MarlinZeros<4, MarlinWordOrder::interleaved>,
    MarlinZeros<4, MarlinWordOrder::plain>, MarlinZeros<8, MarlinWordOrder::interleaved>,
    MarlinZeros<8, MarlinWordOrder::plain>, MarlinScales<ScaleOrder::grouped>,
    MarlinScales<ScaleOrder::single>, MarlinScales<ScaleOrder::single, 8>>;
INSTANTIATE_TYPED_TEST_SUITE_P(Marlin, LayoutTest, MarlinLayouts);

constexpr Dims two_tiles{.n = 128, .k = 32};

template <class L, class Code>
std::uint64_t word(Dims dims, const Code& code, std::int64_t index) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(L::bytes(dims)));
  pack<L>(dims, code, bytes);
  return read_bits<32>(bytes, {.byte = index * 4, .bit = 0});
}

TEST(MarlinLayoutTest, HasTheKnownWordsOf8BitTiles) {
  const auto code = [](std::int64_t n, std::int64_t k) { return (n + 16 * k) & 255; };
  EXPECT_EQ(Marlin8Bit::place(two_tiles, 90, 25), (Place{.byte = 835 * 4 + 3, .bit = 0}));
  EXPECT_EQ(word<Marlin8Bit>(two_tiles, code, 835), 0xea6ada5aU);
}

TEST(MarlinLayoutTest, HasTheKnownWordsOf4BitTilesFor8BitActivations) {
  const auto code = [](std::int64_t n, std::int64_t k) { return (n + n / 16 + 3 * k) & 15; };
  EXPECT_EQ(MarlinAct8Of4Bit::place(two_tiles, 90, 25), (Place{.byte = 299 * 4 + 1, .bit = 4}));
  EXPECT_EQ(word<MarlinAct8Of4Bit>(two_tiles, code, 299), 0x00ddaa77U);
}

// An order of k, by strips of columns or by rows, gives the places of the closed form.
template <WordSource source, Layout From, Layout To>
void expect_ordered(Dims d) {
  std::mt19937_64 random(4);
  std::vector<std::int32_t> order(static_cast<std::size_t>(d.k));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::byte> words(static_cast<std::size_t>(From::bytes(d)));
  for (auto& byte : words) byte = static_cast<std::byte>(random());
  std::vector<std::byte> tiles(words.size());
  marlin_repack({.source = source, .bits = From::bits, .activation = {}},
                {.from = d, .to = d, .parts_n = 1, .order = order}, words, tiles);
  for (std::int64_t n = 0; n < d.n; ++n) {
    for (std::int64_t k = 0; k < d.k; ++k) {
      const std::int64_t row = order[static_cast<std::size_t>(k)];
      ASSERT_EQ(read_bits<To::bits>(tiles, To::place(d, n, k)),
                read_bits<From::bits>(words, From::place(d, n, row)))
          << d.n << " x " << d.k << " at " << n << " " << k;
    }
  }
}

TEST(MarlinLayoutTest, ActOrderTakesTheNamedColumns) {
  for (const Dims d : {Dims{64, 16}, Dims{320, 80}, Dims{576, 272}, Dims{1408, 96}}) {
    expect_ordered<WordSource::gptq, GptqWords<4>, B12xPacked>(d);
    expect_ordered<WordSource::gptq, GptqWords<8>, Marlin8Bit>(d);
    expect_ordered<WordSource::awq, AwqWords<4>, B12xPacked>(d);
    expect_ordered<WordSource::awq, AwqWords<8>, Marlin8Bit>(d);
  }
}

// Parts that are padded to tiles, and parts that begin within one.
TEST(MarlinLayoutTest, ActOrderOfPaddedPartsTakesTheNamedColumns) {
  std::mt19937_64 random(5);
  for (const Dims part : {Dims{64, 128}, Dims{96, 96}, Dims{72, 160}}) {
    const PaddedMatrix sizes{.from = {.n = 2 * part.n, .k = 48},
                             .to = {.n = 2 * part.k, .k = 64},
                             .parts_n = 2,
                             .order = {}};
    std::vector<std::int32_t> order(48);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    PaddedMatrix matrix = sizes;
    matrix.order = order;
    std::vector<std::byte> words(static_cast<std::size_t>(GptqWords<4>::bytes(matrix.from)));
    for (auto& byte : words) byte = static_cast<std::byte>(random());
    std::vector<std::byte> tiles(static_cast<std::size_t>(B12xPacked::bytes(matrix.to)),
                                 std::byte{0xff});
    marlin_repack({.source = WordSource::gptq, .bits = 4, .activation = {}}, matrix, words, tiles);
    for (std::int64_t n = 0; n < matrix.to.n; ++n) {
      for (std::int64_t k = 0; k < matrix.to.k; ++k) {
        const Element e = matrix.source(n, k);
        const std::uint64_t want =
            e.n < 0 ? 0 : read_bits<4>(words, GptqWords<4>::place(matrix.from, e.n, e.k));
        ASSERT_EQ(read_bits<4>(tiles, B12xPacked::place(matrix.to, n, k)), want)
            << part.n << " of " << part.k << " at " << n << " " << k;
      }
    }
  }
}

// Codes of FP8 kernels from words with zero points are those of the formula, padding that of code
// 0, and all that can't be held are counted; groups need not be whole words.
template <WordSource source, Layout From, Layout ZeroWords>
void expect_signed(const PaddedMatrix& matrix, std::int64_t groups, std::mt19937_64& random) {
  using To = MarlinAct8Of4Bit;
  const Dims zero_dims{.n = matrix.from.n, .k = groups};
  std::vector<std::byte> words(static_cast<std::size_t>(From::bytes(matrix.from)));
  std::vector<std::byte> zeros(static_cast<std::size_t>(ZeroWords::bytes(zero_dims)));
  for (auto& byte : words) byte = static_cast<std::byte>(random());
  for (auto& byte : zeros) byte = static_cast<std::byte>(random());
  for (const MarlinRules rules : {MarlinRules::exact, MarlinRules::as_vllm}) {
    std::vector<std::byte> tiles(static_cast<std::size_t>(To::bytes(matrix.to)), std::byte{0x5a});
    const std::int64_t lost = marlin_repack_fp8(
        {.source = source, .rules = rules, .zeros = {.words = zeros, .groups = groups}}, matrix,
        words, tiles);
    std::int64_t expected_lost = 0;
    for (std::int64_t n = 0; n < matrix.to.n; ++n) {
      for (std::int64_t k = 0; k < matrix.to.k; ++k) {
        const Element e = matrix.source(n, k);
        unsigned code = 0;
        unsigned zero = 0;
        if (e.n >= 0) {
          const std::int64_t group = e.k / (matrix.from.k / groups);
          code = static_cast<unsigned>(read_bits<4>(words, From::place(matrix.from, e.n, e.k)));
          zero =
              static_cast<unsigned>(read_bits<4>(zeros, ZeroWords::place(zero_dims, e.n, group)));
        }
        const auto exact = marlin_fp8_code(code, zero);
        const bool as_vllm = rules == MarlinRules::as_vllm;
        if (!as_vllm && !exact) ++expected_lost;
        ASSERT_EQ(read_bits<4>(tiles, To::place(matrix.to, n, k)),
                  as_vllm ? marlin_fp8_code_as_vllm(code, zero) : exact.value_or(0))
            << n << " " << k;
      }
    }
    EXPECT_EQ(lost, expected_lost);
  }
}

TEST(MarlinLayoutTest, SignedCodesAreThoseOfTheFormulaForRandomShapes) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 60; ++i) {
    const auto some = [&](std::uint64_t most) {
      return static_cast<std::int64_t>(1 + random() % most);
    };
    const Dims to{.n = 64 * some(9), .k = 32 * some(6)};
    const std::int64_t group = std::int64_t{4} << random() % 4;
    const PaddedMatrix whole{.from = to, .to = to, .parts_n = 1, .order = {}};
    expect_signed<WordSource::gptq, GptqWords<4>, ColumnWords<4>>(whole, to.k / group, random);
    expect_signed<WordSource::awq, AwqWords<4>, AwqWords<4>>(whole, to.k / group, random);
    const PaddedMatrix padded{.from = {.n = 2 * 8 * some(8), .k = 32 * some(6)},
                              .to = {.n = 128, .k = 192},
                              .parts_n = 2,
                              .order = {}};
    expect_signed<WordSource::gptq, GptqWords<4>, ColumnWords<4>>(padded, padded.from.k / 32,
                                                                  random);
    expect_signed<WordSource::awq, AwqWords<4>, AwqWords<4>>(padded, padded.from.k / 32, random);
    ASSERT_FALSE(HasFailure());
  }
}

// A lane of a warp reads words 4t to 4t + 3: word w holds column 16 * (w/2) + 8 * (w%2) + t/4 and
// k = 4 * (t%4) to + 3, then the same 16 further; bytes of 8-bit codes lie in two words.
TEST(MarlinLayoutTest, AgreesWithTheLaneByLaneDescriptionFor8BitActivations) {
  constexpr Dims d{.n = 64, .k = 32};
  for (std::int64_t t = 0; t < 32; ++t) {
    for (std::int64_t w = 0; w < 4; ++w) {
      const std::int64_t n = 16 * (w / 2) + 8 * (w % 2) + t / 4;
      for (std::int64_t v = 0; v < 8; ++v) {
        const std::int64_t k = 4 * (t % 4) + v % 4 + 16 * (v / 4);
        const std::int64_t slot = 2 * (v % 4) + v / 4;
        EXPECT_EQ(MarlinAct8Of4Bit::place(d, n, k), (Place{.byte = 4 * (4 * t + w) + slot / 2,
                                                           .bit = static_cast<int>(slot % 2) * 4}));
        EXPECT_EQ(MarlinAct8Of8Bit::place(d, n, k),
                  (Place{.byte = 4 * (8 * t + 2 * w + v / 4) + v % 4, .bit = 0}));
      }
    }
  }
}

TEST(MarlinLayoutTest, HasTheKnownWordsOfZeroPoints) {
  constexpr Dims d{.n = 64, .k = 1};
  const auto zero = [](std::int64_t n, std::int64_t) { return (n + n / 16) & 15; };
  using Zeros = MarlinZeros<4, MarlinWordOrder::interleaved>;
  EXPECT_EQ(word<Zeros>(d, zero, 0), 0xba983210U);
  EXPECT_EQ(word<Zeros>(d, zero, 1), 0xcba94321U);
  EXPECT_EQ(word<Zeros>(d, zero, 2), 0xdcba5432U);
  EXPECT_EQ(Zeros::place(d, 26, 0), (Place{.byte = 2 * 4 + 2, .bit = 4}));
  EXPECT_EQ((word<MarlinZeros<4, MarlinWordOrder::plain>>(d, zero, 0)), 0xb3a29180U);
}

template <WordSource source, Layout From>
void expect_zero_blocks(Dims d) {
  using Zeros = MarlinZeros<4, MarlinWordOrder::interleaved>;
  std::mt19937_64 random(8);
  std::vector<std::byte> words(static_cast<std::size_t>(From::bytes(d)));
  for (auto& byte : words) byte = static_cast<std::byte>(random());
  std::vector<std::byte> want(words.size());
  pack<Zeros>(
      d, [&](std::int64_t n, std::int64_t k) { return read_bits<4>(words, From::place(d, n, k)); },
      want);
  std::vector<PackZerosFn*> kernels = {pack_zeros_generic};
  if (packing_isa() >= IsaLevel::avx2) kernels.push_back(pack_zeros(packing_isa()));
  for (PackZerosFn* kernel : kernels) {
    std::vector<std::byte> out(words.size() + 1, std::byte{0xee});
    kernel({.source = source, .words = words.data(), .blocks = d.k * d.n / 64, .out = out.data()});
    EXPECT_EQ(out.back(), std::byte{0xee});
    out.pop_back();
    EXPECT_EQ(out, want) << d.n << " x " << d.k;
  }
  std::vector<std::byte> out(words.size());
  marlin_zero_points({.source = source}, {.from = d, .to = d, .parts_n = 1, .order = {}}, words,
                     out);
  EXPECT_EQ(out, want);
}

TEST(MarlinLayoutTest, ZeroPointsByBlocksAreThoseOfTheClosedForm) {
  for (const Dims d : {Dims{.n = 64, .k = 1}, Dims{.n = 128, .k = 3}, Dims{.n = 960, .k = 7}}) {
    expect_zero_blocks<WordSource::gptq, ColumnWords<4>>(d);
    expect_zero_blocks<WordSource::awq, AwqWords<4>>(d);
  }
}

TEST(MarlinLayoutTest, HalfATileFor8BitActivationsIsRefused) {
  EXPECT_TRUE(Marlin8Bit::accepts({.n = 64, .k = 16}));
  EXPECT_FALSE(MarlinAct8Of4Bit::accepts({.n = 64, .k = 48}));
  EXPECT_FALSE(MarlinAct8Of8Bit::accepts({.n = 64, .k = 48}));
}

// Sign to bit 7, magnitude to the low bits, one more where negative: an e4m3 that is
// (code - zero) * 2^-9.
TEST(MarlinCodesTest, Fp8KernelsDecodeCodeMinusZero) {
  for (unsigned zero = 0; zero < 16; ++zero) {
    for (unsigned code = 0; code < 16; ++code) {
      const int difference = static_cast<int>(code) - static_cast<int>(zero);
      const auto v = marlin_fp8_code(code, zero);
      ASSERT_EQ(v.has_value(), difference >= -8 && difference <= 7) << code << " " << zero;
      if (!v) continue;
      const unsigned e4m3 = ((*v & 8U) << 4) | ((*v & 7U) + (*v >> 3));
      EXPECT_EQ(f8_e4m3_to_f32(static_cast<std::uint8_t>(e4m3)) * marlin_fp8_scale_lift,
                static_cast<float>(difference))
          << code << " " << zero;
    }
  }
}

// vLLM's own codes agree for the middle, and mean code - 8 below any other zero point.
TEST(MarlinCodesTest, AsVllmAgreesForZeroPoint8Only) {
  for (unsigned code = 0; code < 16; ++code) {
    EXPECT_EQ(marlin_fp8_code_as_vllm(code, 8), marlin_fp8_code(code, 8));
  }
  EXPECT_EQ(marlin_fp8_code(0, 8), 15U);
  EXPECT_EQ(marlin_fp8_code(7, 8), 8U);
  EXPECT_EQ(marlin_fp8_code(15, 8), 7U);
  EXPECT_EQ(marlin_fp8_code(6, 7), 8U);            // -1
  EXPECT_EQ(marlin_fp8_code_as_vllm(6, 7), 9U);    // -2
  EXPECT_EQ(marlin_fp8_code_as_vllm(15, 5), 10U);  // -3 instead of 10
}

TEST(MarlinScalesTest, AreSharesOfTheLargestForInt8Activations) {
  std::vector<std::uint16_t> scales = {f32_to_f16(0.01F), f32_to_f16(0.02F), f32_to_f16(0.005F), 0};
  const float factor =
      marlin_act_int8_scales(DType::f16, std::as_writable_bytes(std::span(scales)));
  EXPECT_EQ(scales, (std::vector<std::uint16_t>{2048, 4096, 1024, 0}));
  EXPECT_EQ(factor, f16_to_f32(f32_to_f16(0.02F)) / 4096.0F);
}

TEST(MarlinScalesTest, PaddingFillsTilesAndGroups) {
  for (std::int64_t size = 1; size < 500; ++size) {
    for (const std::int64_t group : {-1, 16, 32, 64, 96, 128}) {
      const std::int64_t padded = marlin_padded_intermediate(size, group);
      EXPECT_GE(padded, size);
      EXPECT_EQ(padded % 64, 0);
      EXPECT_EQ(padded % std::max<std::int64_t>(group, 1), 0);
      EXPECT_LT(padded - size, group == 96 ? 192 : std::max<std::int64_t>(64, group));
    }
  }
}

}  // namespace
}  // namespace fewbit
