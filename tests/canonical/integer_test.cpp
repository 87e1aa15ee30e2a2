// SPDX-License-Identifier: Apache-2.0
// Words of GPTQ and AWQ as canonical rows: orders worked out by hand, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "canonical/integer_matrix.hpp"
#include "canonical/word_pack.hpp"

namespace fewbit {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

template <class T>
Tensor own(DType dtype, Shape shape, std::vector<T> values) {
  auto memory = std::make_shared<std::vector<T>>(std::move(values));
  return {{dtype, std::move(shape), std::as_bytes(std::span<const T>(*memory)), {}}, memory};
}

Tensor words(Shape shape, std::vector<std::uint32_t> values) {
  return own(DType::i32, std::move(shape), std::move(values));
}
// 1.0 in f16.
Tensor ones(std::int64_t rows, std::int64_t columns) {
  return own(DType::f16, {rows, columns},
             std::vector<std::uint16_t>(static_cast<std::size_t>(rows * columns), 0x3C00));
}

Scheme scheme_of(Packing packing, DType weight = DType::u4, std::int64_t group_size = 0) {
  Scheme scheme;
  scheme.producer = Producer::gptq;
  scheme.packing = packing;
  scheme.weight = weight;
  scheme.zero_points = true;
  scheme.scale = ScaleSpec{DType::f16, {1, group_size}, false, ScaleDirection::multiply};
  return scheme;
}

std::vector<float> decode(const Result<QuantizedTensor>& tensor) {
  EXPECT_TRUE(tensor) << tensor.error().message();
  if (!tensor) return {};
  std::vector<float> out(static_cast<std::size_t>(tensor->n * tensor->k));
  EXPECT_TRUE(dequantize_rows(*tensor, 0, out));
  return out;
}

// Columns 0 to 7 hold codes 0 to 7.
TEST(IntegerMatrix, NibblesLieInTheOrderOfTheirProducer) {
  IntegerParts gptq{words({1, 1}, {0x76543210}), words({1, 1}, {0}), ones(1, 1), {}, "m"};
  EXPECT_THAT(decode(make_integer_matrix(scheme_of(Packing::words_k), 1, 8, gptq)),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  // AWQ packs along n: one column, eight rows.
  IntegerParts awq{words({1, 1}, {0x75316420}), words({1, 1}, {0}), ones(1, 8), {}, "m"};
  EXPECT_THAT(decode(make_integer_matrix(scheme_of(Packing::words_n), 8, 1, awq)),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  // Zero points in the same order: 0 to 7 from codes of 0.
  IntegerParts zeros{words({1, 1}, {0}), words({1, 1}, {0x75316420}), ones(1, 8), {}, "m"};
  EXPECT_THAT(decode(make_integer_matrix(scheme_of(Packing::words_n), 8, 1, zeros)),
              ElementsAre(0, -1, -2, -3, -4, -5, -6, -7));
}

// Codes of 8 everywhere; what the stored zero point makes of them.
TEST(IntegerMatrix, StoredZeroPointsAreOneTooSmallInTheFirstFormat) {
  const auto value = [](Packing packing, std::uint32_t zeros) {
    IntegerParts parts{words({1, 8}, std::vector<std::uint32_t>(8, 0x88888888)),
                       words({1, 1}, {zeros}),
                       ones(1, 8),
                       {},
                       "m"};
    return decode(make_integer_matrix(scheme_of(packing), 8, 8, parts));
  };
  EXPECT_THAT(value(Packing::words_k_minus, 0x77777777), Each(0.0F));
  EXPECT_THAT(value(Packing::words_k, 0x77777777), Each(1.0F));
  EXPECT_THAT(value(Packing::words_k, 0x88888888), Each(0.0F));
  EXPECT_THAT(value(Packing::words_k_minus, 0x88888888), Each(-1.0F));
  // A stored -1 is the zero point 0, in every field by itself.
  EXPECT_THAT(value(Packing::words_k_minus, 0xFFFFFFFF), Each(8.0F));
}

TEST(IntegerMatrix, ThreeBitCodesStraddleWords) {
  // 32 codes of 3 bits: code 10 takes the last two bits of word 0, code 21 the last one of word 1.
  std::vector<std::uint32_t> stream(3);
  const auto code = [](unsigned i) { return (i * 5 + 1) % 8; };
  for (unsigned i = 0; i < 32; ++i) {
    for (unsigned bit = 0; bit < 3; ++bit) {
      const unsigned at = 3 * i + bit;
      stream[at / 32] |= ((code(i) >> bit) & 1U) << (at % 32);
    }
  }
  IntegerParts parts{words({3, 1}, stream), words({1, 1}, {0}), ones(1, 1), {}, "m"};
  const auto values =
      decode(make_integer_matrix(scheme_of(Packing::words_k, DType::u3), 1, 32, parts));
  ASSERT_EQ(values.size(), 32U);
  for (unsigned i = 0; i < 32; ++i) EXPECT_EQ(values[i], static_cast<float>(code(i))) << i;
}

TEST(IntegerMatrix, GroupsOfColumnsFollowTheirIndexAndCountBackFromTheEnd) {
  const auto make = [](std::vector<std::int32_t> g_idx, ActOrder order = ActOrder::none) {
    IntegerParts parts{words({1, 1}, {0x11111111}), words({2, 1}, {0, 0}),
                       own<std::uint16_t>(DType::f16, {2, 1}, {0x3C00, 0x4000}),
                       own(DType::i32, {8}, std::move(g_idx)), "layer.up"};
    Scheme scheme = scheme_of(Packing::words_k, DType::u4, 4);
    scheme.act_order = order;
    return make_integer_matrix(scheme, 1, 8, parts);
  };
  const auto ordered = make({0, 0, 0, 0, 1, 1, 1, 1});
  EXPECT_EQ(ordered->scheme.act_order, ActOrder::none);
  EXPECT_THAT(decode(ordered), ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
  // One of several experts whose layer is in act-order.
  const auto by_chance = make({0, 0, 0, 0, 1, 1, 1, 1}, ActOrder::group);
  EXPECT_EQ(by_chance->scheme.act_order, ActOrder::group);
  EXPECT_THAT(decode(by_chance), ElementsAre(1, 1, 1, 1, 2, 2, 2, 2));
  const auto mixed = make({1, 0, 1, 0, -1, -2, 0, 1});
  EXPECT_EQ(mixed->scheme.act_order, ActOrder::group);
  EXPECT_THAT(decode(mixed), ElementsAre(2, 1, 2, 1, 2, 1, 1, 2));
  const auto outside = make({0, 0, 0, 0, 1, 2, 1, 1});
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().message(),
            "layer.up.g_idx: element 5 is 2, expected a group from 0 to 1");
  EXPECT_FALSE(make({0, 0, 0, 0, 1, -3, 1, 1}));
}

TEST(IntegerMatrix, EveryPartIsCheckedWithBothShapes) {
  const IntegerParts good{words({4, 8}, std::vector<std::uint32_t>(32)),
                          words({2, 1}, {0, 0}),
                          ones(2, 8),
                          {},
                          "layer.up"};
  const Scheme scheme = scheme_of(Packing::words_k, DType::u4, 16);
  ASSERT_TRUE(make_integer_matrix(scheme, 8, 32, good));
  const auto message = [&](IntegerParts parts) {
    const auto made = make_integer_matrix(scheme, 8, 32, parts);
    EXPECT_FALSE(made);
    return made ? std::string() : made.error().message();
  };
  IntegerParts parts = good;
  parts.scales = ones(1, 8);
  EXPECT_EQ(message(parts), "layer.up.scales: is f16 [1, 8], expected f16 [2, 8]");
  parts = good;
  parts.qzeros = words({2, 2}, {0, 0, 0, 0});
  EXPECT_EQ(message(parts), "layer.up.qzeros: is i32 [2, 2], expected i32 [2, 1]");
  parts = good;
  parts.qzeros = {};
  EXPECT_THAT(message(parts), HasSubstr("layer.up.qzeros is missing"));
  parts = good;
  parts.qweight = own<std::uint8_t>(DType::u8, {4, 8}, std::vector<std::uint8_t>(32));
  EXPECT_EQ(message(parts), "layer.up.qweight: is u8 [4, 8], expected i32 [4, 8]");
  parts = good;
  parts.g_idx = own<std::int32_t>(DType::i32, {31}, std::vector<std::int32_t>(31));
  EXPECT_EQ(message(parts), "layer.up.g_idx: is i32 [31], expected i32 [32]");
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THAT(make_integer_matrix(scheme, huge, huge, good).error().message(),
              HasSubstr("expected 1 to 2^40"));
}

TEST(WordPack, PackedColumnsComeBack) {
  std::vector<std::int32_t> codes(64);
  std::iota(codes.begin(), codes.end(), 0);
  for (std::int32_t& code : codes) code = code * 7 % 16;
  const auto packed = pack_cols(codes, {4, 16}, 4);
  ASSERT_TRUE(packed);
  EXPECT_EQ(*unpack_cols(*packed, {4, 16}, 4), codes);
}

TEST(WordPack, CodesThatDoNotFitAreRefusedUnlessTheyMaySpill) {
  const std::vector<std::int32_t> codes = {1, 16, 0, 0, 0, 0, 0, 0};
  EXPECT_THAT(pack_rows(codes, {8, 1}, 4).error().what,
              HasSubstr("code 1 is 16, expected 0 to 15"));
  EXPECT_THAT(*pack_rows(codes, {8, 1}, 4, WideCodes::spill), ElementsAre(0x101U));
  EXPECT_THAT(pack_cols(codes, {1, 8}, 3).error().what, HasSubstr("3 bits do not divide"));
  EXPECT_THAT(pack_rows(codes, {4, 2}, 4).error().what, HasSubstr("4 codes of 4 bits"));
  EXPECT_THAT(pack_cols(codes, {2, 8}, 4).error().what, HasSubstr("8 codes, expected [2, 8]"));
}

TEST(WordPack, RowsOfOneGroupKeepTheirOrder) {
  const std::vector<std::int32_t> codes = {10, 11, 12, 13};
  const std::vector<std::int32_t> g_idx = {1, 0, 1, 0};
  const auto sorted = sort_rows_by_group(codes, {4, 1}, g_idx);
  ASSERT_TRUE(sorted);
  EXPECT_THAT(sorted->order, ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(sorted->codes, ElementsAre(11, 13, 10, 12));
  EXPECT_THAT(sorted->g_idx, ElementsAre(0, 0, 1, 1));
  EXPECT_FALSE(sort_rows_by_group(codes, {4, 1}, std::span(g_idx).first(3)));
}

}  // namespace
}  // namespace fewbit
