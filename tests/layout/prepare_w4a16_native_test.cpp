// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/float_convert.hpp"
#include "fewbit/layouts.hpp"
#include "layout/backward_executor.hpp"
#include "layout/pack.hpp"
#include "layout/row_order.hpp"
#include "layout/scale_grid.hpp"
#include "layout/w4a16_example.hpp"
#include "layout/w4a16_scale.hpp"

namespace fewbit {
namespace {

using ::fewbit::testing::BackwardExecutor;
using ::fewbit::testing::W4a16Example;

W4a16Input sizes(W4a16Source source, std::int64_t hidden_size, std::int64_t intermediate_size) {
  W4a16Input input;
  input.source = source;
  input.block_scale_storage = BlockScaleStorage::plain;
  input.hidden_size = hidden_size;
  input.intermediate_size = intermediate_size;
  return input;
}

std::string refusal(const W4a16Input& input) {
  const auto plan = plan_w4a16_native(input, UnevenColumns::refuse);
  return plan ? "" : plan.error().message();
}

// Native scales are those of the packed form: the same grids where both exist.
TEST(PrepareW4a16NativeTest, HasTheScalesOfThePackedForm) {
  for (const W4a16Source source : {W4a16Source::modelopt_nvfp4, W4a16Source::fp4_e8m0_k32}) {
    W4a16Example example(sizes(source, 128, 96), 3);
    BackwardExecutor executor(3);
    ASSERT_TRUE(prepare_w4a16(example.input, example.output(), IsaLevel::generic, executor));
    const auto native = prepare_w4a16_native(example.input, UnevenColumns::refuse, executor);
    ASSERT_TRUE(native) << native.error().message();
    EXPECT_TRUE(std::ranges::equal(native->w13.scales.view.bytes, example.w13.scales_out));
    EXPECT_TRUE(std::ranges::equal(native->w2.scales.view.bytes, example.w2.scales_out));
    EXPECT_TRUE(std::ranges::equal(native->w2.global_scales.view.bytes,
                                   std::as_bytes(std::span(example.w2.globals_out))));
  }
}

// The last group of w2 covers 8 columns of k, and 80 rows of w13 are padded to 128 columns.
TEST(PrepareW4a16NativeTest, AKTailPadsTheColumnsOfW13WithZeros) {
  constexpr Dims w13{.n = 80, .k = 4};
  std::vector<std::byte> codes(80 * 64);
  std::vector<std::byte> scales(80 * 4);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::byte>(1 + i % 200);
  std::vector<std::byte> w2_codes(128 * 20);
  std::vector<std::byte> w2_scales(128 * 2, std::byte{120});
  const std::vector<float> globals = {0.5F};
  W4a16Input input = sizes(W4a16Source::fp4_e8m0_k32, 128, 40);
  const auto view = [](DType dtype, Shape shape, std::span<const std::byte> bytes) {
    return TensorView{.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .device = {}};
  };
  const TensorView global = view(DType::f32, {1}, std::as_bytes(std::span(globals)));
  input.w13 = {view(DType::u8, {1, 80, 64}, codes), view(DType::u8, {1, 80, 4}, scales), global};
  input.w2 = {view(DType::u8, {1, 128, 20}, w2_codes), view(DType::u8, {1, 128, 2}, w2_scales),
              global};
  const auto result = prepare_w4a16_native(input, UnevenColumns::refuse, serial_executor());
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->w13.scales.view.shape, (Shape{1, 4, 128}));
  std::size_t zeros = 0;
  for (const std::byte byte : result->w13.scales.view.bytes) zeros += byte == std::byte{0} ? 1 : 0;
  EXPECT_EQ(zeros, 4U * 48U);
  // Tile kernels read gate rows first, the micro kernel reads rows as stored.
  const auto expect_rows = [&](const Tensor& grid, std::int64_t shift) {
    for (std::int64_t n = 0; n < w13.n; ++n) {
      for (std::int64_t k = 0; k < w13.k; ++k) {
        const std::int64_t row = (n + shift) % w13.n;
        const Place place = GroupedByteScales::place({.n = 128, .k = 4}, n, k);
        EXPECT_EQ(grid.view.bytes[static_cast<std::size_t>(place.byte)],
                  scales[static_cast<std::size_t>(row * w13.k + k)])
            << n << " " << k;
      }
    }
  };
  expect_rows(result->w13.scales, 40);
  expect_rows(result->w13.micro_scales, 0);
}

TEST(PrepareW4a16NativeTest, ScalesAreCutOnlyOnRequestAndCounted) {
  const W4a16Example example(sizes(W4a16Source::modelopt_nvfp4, 128, 48), 2);
  EXPECT_EQ(refusal(example.input), "w13 block scales: n is 96, expected a multiple of 64");
  const auto cut = prepare_w4a16_native(example.input, UnevenColumns::cut, serial_executor());
  ASSERT_TRUE(cut) << cut.error().message();
  // Of the last 32 columns, 4 of every 8 move behind position 32: of 8 groups and 2 experts.
  EXPECT_EQ(cut->report.w13.cut_scales, 2 * 8 * 16);
  EXPECT_EQ(cut->report.w2.cut_scales, 0);
}

// Any number of columns, whole blocks and the rest, swizzled or not: each column of the grid holds
// the scale that its order names, cut ones are lost and padding is 0.
TEST(PrepareW4a16NativeTest, UnevenColumnsHoldTheScalesOfTheirOrder) {
  std::mt19937_64 random(6);
  for (int i = 0; i < 60; ++i) {
    const W4a16Source source = i % 2 == 0 ? W4a16Source::fp4_e8m0_k32 : W4a16Source::modelopt_nvfp4;
    W4a16Input input = sizes(source, 64 * static_cast<std::int64_t>(1 + random() % 6),
                             32 * static_cast<std::int64_t>(1 + random() % 7));
    if (i % 3 == 0) input.block_scale_storage = BlockScaleStorage::swizzled_128x4;
    if (i % 5 < 2) input.w13_order = W13Order::gate_up;
    input.activation_dtype = DType::f16;  // no factor
    const W4a16Example example(input, 2);
    BackwardExecutor executor(3);
    const auto result = prepare_w4a16_native(example.input, UnevenColumns::cut, executor);
    ASSERT_TRUE(result) << result.error().message();
    const Dims grid = example.w13.grid;
    const std::int64_t columns = result->w13.scales.view.shape[2];
    const std::int64_t group = w4a16_group_size(source);
    const bool grouped = scale_order(input.hidden_size, group) == ScaleOrder::grouped;
    const RowRotation rows = to_gate_up(grid.n, input.gating, input.w13_order);
    for (std::int64_t row = 0; row < 2 * grid.k * columns; ++row) {
      const std::int64_t e = row / (grid.k * columns);
      const std::int64_t k = row / columns % grid.k;
      const std::int64_t column = row % columns;
      const std::int64_t n =
          grouped ? GroupedByteScales::source(column) : SingleByteScales::source(column);
      std::uint8_t want = 0;
      if (n < grid.n) {
        const auto at = static_cast<std::size_t>((e * grid.n + rows.source(n)) * grid.k + k);
        const auto stored = std::to_integer<std::uint8_t>(example.w13.scales[at]);
        want = source == W4a16Source::fp4_e8m0_k32 ? e8m0_scale_byte(stored)
                                                   : nvfp4_scale_byte(f8_e4m3_to_f32(stored), 1.0F);
      }
      ASSERT_EQ(result->w13.scales.view.bytes[static_cast<std::size_t>(row)], std::byte{want})
          << i << " expert " << e << " group " << k << " column " << column << " of " << grid.n;
    }
  }
}

TEST(PrepareW4a16NativeTest, RefusesWithNumbers) {
  EXPECT_EQ(refusal(W4a16Example(sizes(W4a16Source::compressed_tensors, 128, 64), 2).input),
            "source format 'compressed_tensors' has no native form, expected 'modelopt_nvfp4' or "
            "'fp4_e8m0_k32'");
  EXPECT_EQ(refusal(W4a16Example(sizes(W4a16Source::fp4_e8m0_k32, 144, 64), 2).input),
            "w13 codes: k is 144, expected a multiple of 32");
  EXPECT_EQ(refusal(W4a16Example(sizes(W4a16Source::fp4_e8m0_k32, 128, 44), 2).input),
            "w2 codes: k is 44, expected a multiple of 8");
}

}  // namespace
}  // namespace fewbit
