// SPDX-License-Identifier: Apache-2.0
// Checked arithmetic, aligned buffers, tensors and array conversion.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/checked.hpp"
#include "core/convert.hpp"
#include "core/float_convert.hpp"
#include "core/huge_pages.hpp"
#include "fewbit/tensor.hpp"

namespace fewbit {
namespace {

constexpr std::uint64_t u64_max = std::numeric_limits<std::uint64_t>::max();
constexpr std::int64_t i64_max = std::numeric_limits<std::int64_t>::max();

TEST(Checked, IsEmptyExactlyOnOverflow) {
  EXPECT_EQ(checked_add(u64_max - 1, std::uint64_t{1}), u64_max);
  EXPECT_EQ(checked_add(u64_max, std::uint64_t{1}), std::nullopt);
  EXPECT_EQ(checked_sub(std::uint64_t{2}, std::uint64_t{3}), std::nullopt);
  EXPECT_EQ(checked_sub(std::int64_t{2}, std::int64_t{3}), -1);
  EXPECT_EQ(checked_mul(std::int64_t{1} << 31, std::int64_t{1} << 31), std::int64_t{1} << 62);
  EXPECT_EQ(checked_mul(std::int64_t{1} << 32, std::int64_t{1} << 31), std::nullopt);
  EXPECT_EQ(checked_cast<std::int64_t>(u64_max), std::nullopt);
  EXPECT_EQ(checked_cast<std::uint64_t>(std::int64_t{-1}), std::nullopt);
  EXPECT_EQ(checked_cast<std::int32_t>(std::int64_t{-5}), -5);
}

TEST(HugePages, SettingIsTheWordInBrackets) {
  EXPECT_EQ(chosen_setting("always [madvise] never\n"), "madvise");
  EXPECT_EQ(chosen_setting("[always] madvise never\n"), "always");
  for (const char* text : {"", "always madvise never", "always]", "[always"})
    EXPECT_EQ(chosen_setting(text), "") << text;
}

TEST(HugePages, BuffersAroundTheirSizeAreZeroedAndWhole) {
  constexpr std::uint64_t page = std::uint64_t{1} << 21;
  for (const std::uint64_t bytes : {page - 1, page, page + 1, 2 * page - 64, 3 * page + 5}) {
    AlignedBuffer buffer = *AlignedBuffer::allocate(bytes);
    ask_for_huge_pages(buffer.span());
    for (const std::byte byte : buffer.span()) ASSERT_EQ(byte, std::byte{0});
    std::memset(buffer.data(), 0x5a, buffer.size());
    EXPECT_EQ(buffer.span().back(), std::byte{0x5a});
  }
  ask_for_huge_pages({});
}

TEST(Checked, RoundsUp) {
  EXPECT_EQ(ceil_div(0, 4), 0);
  EXPECT_EQ(ceil_div(5, 4), 2);
  EXPECT_EQ(ceil_div(i64_max, std::int64_t{2}), (std::int64_t{1} << 62));
  EXPECT_EQ(round_up(64, 64), 64);
  EXPECT_EQ(round_up(65, 64), 128);
  EXPECT_EQ(checked_round_up(u64_max, std::uint64_t{64}), std::nullopt);
  EXPECT_EQ(checked_round_up(u64_max - 63, std::uint64_t{64}), u64_max - 63);
}

TEST(AlignedBuffer, IsAlignedZeroedAndMovable) {
  for (const std::uint64_t bytes : {1U, 63U, 64U, 65U, 4096U, 1000003U}) {
    Result<AlignedBuffer> result = AlignedBuffer::allocate(bytes);
    ASSERT_TRUE(result) << result.error().message();
    AlignedBuffer buffer = *std::move(result);
    ASSERT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
    for (const std::byte value : buffer.span()) EXPECT_EQ(value, std::byte{0});
    buffer.span().back() = std::byte{7};
    AlignedBuffer moved = std::move(buffer);
    EXPECT_EQ(moved.span().back(), std::byte{7});
    EXPECT_TRUE(buffer.span().empty());  // NOLINT(bugprone-use-after-move): that is the property
    buffer = std::move(moved);
    EXPECT_EQ(buffer.size(), bytes);
  }
  EXPECT_TRUE(AlignedBuffer::allocate(0)->span().empty());
}

TEST(AlignedBuffer, NamesTheSizeThatCantBeHad) {
  const Result<AlignedBuffer> result = AlignedBuffer::allocate(u64_max);
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::limit);
  EXPECT_NE(result.error().what.find("18446744073709551615"), std::string::npos);
}

TEST(DType, NamesAreUniqueAndReadBack) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(DType::u7); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_TRUE(names.insert(dtype_name(dtype)).second) << i;
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_GT(dtype_bits(dtype), 0);
  }
  EXPECT_EQ(dtype_from_name("F16"), std::nullopt);
  EXPECT_EQ(dtype_bits(DType::nf3), 3);
  EXPECT_EQ(dtype_bits(DType::f4_e2m1), 4);
  EXPECT_EQ(dtype_bits(DType::c64), 64);
}

TEST(Shape, CountsElementsOrSaysWhyNot) {
  EXPECT_EQ(*shape_elements(Shape{}), 1);
  EXPECT_EQ(*shape_elements(Shape{4096, 14336}), 58720256);
  EXPECT_EQ(*shape_elements(Shape{i64_max, 0, i64_max}), 0);
  EXPECT_EQ(shape_text(Shape{4096, 14336}), "[4096, 14336]");
  EXPECT_EQ(shape_text(Shape{}), "[]");

  const auto too_many = shape_elements(Shape{i64_max, 2});
  ASSERT_FALSE(too_many);
  EXPECT_EQ(too_many.error().code, ErrorCode::limit);
  EXPECT_NE(too_many.error().what.find("[9223372036854775807, 2]"), std::string::npos);
  const auto negative = shape_elements(Shape{3, -2, 0});
  ASSERT_FALSE(negative);
  EXPECT_EQ(negative.error().code, ErrorCode::limit);
  EXPECT_NE(negative.error().what.find("-2"), std::string::npos);
}

TEST(TensorBytes, NeedsWholeBytes) {
  EXPECT_EQ(*tensor_bytes(DType::f4_e2m1, Shape{3, 2}), 3U);
  EXPECT_EQ(*tensor_bytes(DType::nf3, Shape{8}), 3U);
  EXPECT_EQ(*tensor_bytes(DType::bf16, Shape{}), 2U);
  const auto odd = tensor_bytes(DType::f4_e2m1, Shape{3, 3});
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, ErrorCode::corrupt);
  EXPECT_NE(odd.error().what.find("36 bits"), std::string::npos);
  EXPECT_EQ(tensor_bytes(DType::f64, Shape{i64_max}).error().code, ErrorCode::limit);
}

TEST(OwnedTensor, OwnsTheMemoryItsViewShows) {
  auto owned = allocate_tensor(DType::f32, Shape{2, 3});
  ASSERT_TRUE(owned);
  ASSERT_EQ(owned->bytes.size(), 24U);
  const float value = 2.5F;
  std::memcpy(owned->bytes.data() + 20, &value, sizeof value);
  const Tensor kept = owned->tensor;
  owned->tensor = {};
  const auto values = typed_span<float>(kept.view);
  ASSERT_TRUE(values);
  EXPECT_EQ((*values)[5], 2.5F);
  EXPECT_EQ((*values)[0], 0.0F);
  EXPECT_EQ(allocate_tensor(DType::u8, Shape{-1}).error().code, ErrorCode::limit);
}

TEST(Convert, ReadsUnalignedBytesAndWritesThemBack) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::f8_e4m3, DType::f8_e5m2,
        DType::f8_e8m0, DType::f8_e4m3fnuz, DType::f8_e5m2fnuz}) {
    const std::vector<float> values = {0.25F, 0.5F, 1.0F, 2.0F, 4.0F, 8.0F, 16.0F};
    const std::size_t bytes = values.size() * static_cast<std::size_t>(dtype_bits(dtype)) / 8;
    std::vector<std::byte> storage(bytes + 1);
    const std::span<std::byte> target(storage.data() + 1, bytes);
    ASSERT_TRUE(convert_from_f32(values, dtype, target)) << dtype_name(dtype);
    std::vector<float> back(values.size());
    ASSERT_TRUE(convert_to_f32(dtype, target, back)) << dtype_name(dtype);
    EXPECT_EQ(back, values) << dtype_name(dtype);
  }
}

TEST(Convert, RoundsOnceAndDoesNotSaturate) {
  const std::vector<float> values = {1.0F + 0x1p-8F, 1e30F};
  std::array<std::uint16_t, 2> half{};
  ASSERT_TRUE(convert_from_f32(values, DType::f16, std::as_writable_bytes(std::span(half))));
  EXPECT_EQ(half[1], 0x7c00);
  std::array<std::uint8_t, 2> e4m3{};
  ASSERT_TRUE(convert_from_f32(values, DType::f8_e4m3, std::as_writable_bytes(std::span(e4m3))));
  EXPECT_EQ(e4m3[1], 0x7f);
  const std::array<double, 1> f64 = {1.0 + 0x1p-24};  // a tie: to the even 1
  std::array<float, 1> f32{};
  ASSERT_TRUE(convert_to_f32(DType::f64, std::as_bytes(std::span(f64)), f32));
  EXPECT_EQ(f32[0], 1.0F);
}

TEST(Convert, RefusesOtherTypesAndSizesThatDiffer) {
  std::array<std::byte, 6> bytes{};
  std::array<float, 4> values{};
  const auto sizes = convert_to_f32(DType::bf16, bytes, values);
  ASSERT_FALSE(sizes);
  EXPECT_EQ(sizes.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(sizes.error().what, "6 bytes of bf16 against 4 elements of f32");
  const auto odd =
      convert_from_f32(std::span(values).first(2), DType::bf16, std::span(bytes).first(5));
  EXPECT_EQ(odd.error().what, "5 bytes of bf16 against 2 elements of f32");
  const auto dtype = convert_to_f32(DType::i4, bytes, values);
  ASSERT_FALSE(dtype);
  EXPECT_EQ(dtype.error().code, ErrorCode::unsupported);
  EXPECT_NE(dtype.error().what.find("i4"), std::string::npos);
  EXPECT_EQ(convert_from_f32(values, DType::f4_e2m1, bytes).error().code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace fewbit
