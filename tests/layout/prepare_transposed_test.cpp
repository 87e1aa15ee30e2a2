// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_transposed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/float_convert.hpp"
#include "layout/backward_executor.hpp"
#include "layout/column_major.hpp"
#include "layout/f4_transposed.hpp"
#include "layout/pack.hpp"
#include "layout/row_major.hpp"

namespace fewbit {
namespace {

using ::fewbit::testing::BackwardExecutor;
using ::testing::HasSubstr;

TensorView view(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .device = {}};
}

// Matrices of random bytes and their views.
class Parts {
 public:
  Parts(std::int64_t k, std::int64_t group, const std::vector<std::int64_t>& rows,
        std::mt19937_64& random)
      : k_(k), group_(group) {
    memory_.resize(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      Memory& m = memory_[i];
      m.n = rows[i];
      m.codes = bytes(m.n * k / 2, random);
      m.scales = bytes(m.n * k / group, random);
      for (std::int64_t n = 0; n < m.n; ++n) m.globals.push_back(static_cast<float>(random() % 99));
    }
  }

  F4TransposeInput input(std::int64_t align) const {
    F4TransposeInput in{.k = k_, .group = group_, .align = align, .parts = {}};
    for (const Memory& m : memory_) {
      const DType dtype = group_ == 16 ? DType::f8_e4m3 : DType::f8_e8m0;
      in.parts.push_back({.codes = view(DType::u8, {m.n, k_ / 2}, m.codes),
                          .scales = view(dtype, {m.n, k_ / group_}, m.scales),
                          .globals = {}});
      if (group_ == 16) {
        in.parts.back().globals = view(DType::f32, {m.n}, std::as_bytes(std::span(m.globals)));
      }
    }
    return in;
  }
  std::int64_t columns() const {
    std::int64_t sum = 0;
    for (const Memory& m : memory_) sum += m.n;
    return sum;
  }
  // Of column n of all parts.
  std::uint64_t code(std::int64_t n, std::int64_t k) const {
    const auto [m, row] = find(n);
    return read_bits<4>(m->codes, RowMajor<4>::place({.n = m->n, .k = k_}, row, k));
  }
  std::uint64_t scale(std::int64_t n, std::int64_t g) const {
    const auto [m, row] = find(n);
    return read_bits<8>(m->scales, RowMajor<8>::place({.n = m->n, .k = k_ / group_}, row, g));
  }
  float global(std::int64_t n) const {
    const auto [m, row] = find(n);
    return m->globals[static_cast<std::size_t>(row)];
  }

 private:
  struct Memory {
    std::int64_t n = 0;
    std::vector<std::byte> codes;
    std::vector<std::byte> scales;
    std::vector<float> globals;
  };
  static std::vector<std::byte> bytes(std::int64_t count, std::mt19937_64& random) {
    std::vector<std::byte> all(static_cast<std::size_t>(count));
    for (auto& byte : all) byte = static_cast<std::byte>(random());
    return all;
  }
  std::pair<const Memory*, std::int64_t> find(std::int64_t n) const {
    for (const Memory& m : memory_) {
      if (n < m.n) return {&m, n};
      n -= m.n;
    }
    return {nullptr, 0};
  }
  std::int64_t k_;
  std::int64_t group_;
  std::vector<Memory> memory_;
};

// The bytes of the closed form over all columns, padding zero, whatever the parts and the stride.
template <std::int64_t align>
void expect_closed_form(const Parts& parts, std::int64_t k, std::int64_t group) {
  BackwardExecutor executor(3);
  const auto result = transpose_f4(parts.input(align), executor);
  ASSERT_TRUE(result) << result.error().message();
  const Dims all{.n = parts.columns(), .k = k};
  const Dims grid{.n = all.n, .k = k / group};
  std::vector<std::byte> codes(static_cast<std::size_t>(F4Transposed<align>::bytes(all)));
  std::vector<std::byte> scales(static_cast<std::size_t>(F4TransposedScales<align>::bytes(grid)));
  pack<F4Transposed<align>>(
      all, [&](std::int64_t n, std::int64_t at) { return parts.code(n, at); }, codes);
  pack<F4TransposedScales<align>>(
      grid, [&](std::int64_t n, std::int64_t at) { return parts.scale(n, at); }, scales);
  EXPECT_TRUE(std::ranges::equal(result->codes.view.bytes, codes)) << all.n << " x " << k;
  EXPECT_TRUE(std::ranges::equal(result->scales.view.bytes, scales)) << all.n << " x " << k;
}

TEST(TransposeF4Test, GivesTheBytesOfTheClosedFormForRandomShapes) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 400; ++i) {
    const std::int64_t group = random() % 2 == 0 ? 16 : 32;
    const std::int64_t k = group * static_cast<std::int64_t>(1 + random() % 9);
    std::vector<std::int64_t> rows;
    for (std::uint64_t part = 0; part < 1 + random() % 3; ++part) {
      rows.push_back(static_cast<std::int64_t>(1 + random() % 150));
    }
    const Parts parts(k, group, rows, random);
    expect_closed_form<1>(parts, k, group);
    expect_closed_form<16>(parts, k, group);
    expect_closed_form<64>(parts, k, group);
    ASSERT_FALSE(HasFailure()) << i;
  }
}

TEST(TransposeF4Test, KeepsTheGlobalScaleOfEveryRow) {
  std::mt19937_64 random(4);
  const Parts parts(32, 16, {5, 7}, random);
  F4TransposeInput input = parts.input(16);
  const auto result = transpose_f4(input);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->first_of, (std::vector<std::int64_t>{0, 5}));
  const auto globals = typed_span<float>(result->globals.view);
  ASSERT_TRUE(globals);
  ASSERT_EQ(globals->size(), 16U);
  for (std::int64_t n = 0; n < 12; ++n) {
    EXPECT_EQ((*globals)[static_cast<std::size_t>(n)], parts.global(n));
  }
  // One that all share stays one; parts that have one each and differ do not lose theirs.
  const std::vector<float> one = {0.5F};
  const std::vector<float> other = {0.25F};
  for (auto& part : input.parts) {
    part.globals = view(DType::f32, {1}, std::as_bytes(std::span(one)));
  }
  EXPECT_EQ(transpose_f4(input)->globals.view.shape, Shape{1});
  input.parts[1].globals = view(DType::f32, {1}, std::as_bytes(std::span(other)));
  const auto apart = transpose_f4(input);
  ASSERT_TRUE(apart);
  const auto both = typed_span<float>(apart->globals.view);
  ASSERT_TRUE(both);
  EXPECT_EQ((*both)[4], 0.5F);
  EXPECT_EQ((*both)[5], 0.25F);
}

TEST(TransposeF4Test, RefusesWithNumbers) {
  std::mt19937_64 random(5);
  const Parts parts(32, 16, {5, 7}, random);
  const auto refusal = [](const F4TransposeInput& in) {
    const auto result = transpose_f4(in);
    return result ? std::string() : result.error().message();
  };
  F4TransposeInput input = parts.input(1);
  input.k = 40;
  EXPECT_EQ(refusal(input), "k: 40, expected a multiple of the group, 16");
  input = parts.input(1);
  input.group = 8;
  EXPECT_EQ(refusal(input), "group: 8, expected 16 or 32");
  input = parts.input(1);
  input.parts[1].globals.reset();
  EXPECT_EQ(refusal(input), "part 1 global scales: missing, expected for groups of 16");
  input = parts.input(1);
  input.parts[1].scales.shape = {7, 3};
  EXPECT_THAT(refusal(input), HasSubstr("part 1 scales: shape [7, 3], expected [7, 2]"));
  input.parts.clear();
  EXPECT_EQ(refusal(input), "parts: none, expected at least one matrix");
}

// Codes and scales change their sides, and twice is nothing.
TEST(TransposeFp8Test, TwiceIsNothing) {
  std::mt19937_64 random(6);
  for (const Dims d : {Dims{1, 1}, Dims{128, 256}, Dims{200, 130}, Dims{64, 392}}) {
    const Dims grid{.n = (d.n + 127) / 128, .k = (d.k + 127) / 128};
    std::vector<std::byte> codes(static_cast<std::size_t>(d.n * d.k));
    for (auto& byte : codes) byte = static_cast<std::byte>(random());
    std::vector<float> scales(static_cast<std::size_t>(grid.n * grid.k));
    for (auto& scale : scales) scale = static_cast<float>(random() % 1000);
    const auto scale_bytes = std::as_bytes(std::span(scales));
    const auto once = transpose_fp8(view(DType::f8_e4m3, {d.n, d.k}, codes),
                                    view(DType::f32, {grid.n, grid.k}, scale_bytes), d);
    ASSERT_TRUE(once) << once.error().message();
    EXPECT_EQ(once->scales.view.shape, (Shape{grid.k, grid.n}));
    for (std::int64_t n = 0; n < d.n; ++n) {
      for (std::int64_t k = 0; k < d.k; ++k) {
        ASSERT_EQ(read_bits<8>(once->codes.view.bytes, ColumnMajor<8>::place(d, n, k)),
                  read_bits<8>(codes, RowMajor<8>::place(d, n, k)));
      }
    }
    const auto twice = transpose_fp8(once->codes.view, once->scales.view, {.n = d.k, .k = d.n});
    ASSERT_TRUE(twice) << twice.error().message();
    EXPECT_TRUE(std::ranges::equal(twice->codes.view.bytes, codes));
    EXPECT_TRUE(std::ranges::equal(twice->scales.view.bytes, scale_bytes));
  }
}

TEST(TransposeFp8Test, TakesBf16ScalesAndRefusesOtherKinds) {
  const std::vector<std::byte> codes(2 * 130);
  const std::vector<std::uint16_t> scales = {f32_to_bf16(0.5F), f32_to_bf16(3.0F)};
  TensorView scale_view = view(DType::bf16, {1, 2}, std::as_bytes(std::span(scales)));
  const TensorView code_view = view(DType::f8_e4m3, {2, 130}, codes);
  const auto result = transpose_fp8(code_view, scale_view, {.n = 2, .k = 130});
  ASSERT_TRUE(result) << result.error().message();
  const auto values = typed_span<float>(result->scales.view);
  ASSERT_TRUE(values);
  EXPECT_EQ((*values)[1], 3.0F);
  scale_view.dtype = DType::i32;
  EXPECT_EQ(transpose_fp8(code_view, scale_view, {.n = 2, .k = 130}).error().message(),
            "scales: dtype i32, expected f32 or bf16");
  EXPECT_THAT(transpose_fp8(view(DType::u8, {2, 130}, codes), scale_view, {.n = 2, .k = 130})
                  .error()
                  .message(),
              HasSubstr("codes: dtype u8, expected f8_e4m3"));
}

}  // namespace
}  // namespace fewbit
