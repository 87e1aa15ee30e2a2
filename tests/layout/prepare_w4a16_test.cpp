// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/float_convert.hpp"
#include "fewbit/layouts.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/backward_executor.hpp"
#include "layout/element_mover.hpp"
#include "layout/pack.hpp"
#include "layout/row_order.hpp"
#include "layout/scale_grid.hpp"
#include "layout/w4a16_example.hpp"
#include "layout/w4a16_scale.hpp"

namespace fewbit {
namespace {

using ::fewbit::testing::BackwardExecutor;
using ::fewbit::testing::W4a16Example;
using ::testing::HasSubstr;

W4a16Input sizes(std::int64_t hidden_size, std::int64_t intermediate_size) {
  W4a16Input input;
  input.hidden_size = hidden_size;
  input.intermediate_size = intermediate_size;
  return input;
}

W4a16Report prepare(W4a16Example& example) {
  BackwardExecutor executor(3);
  const auto report = prepare_w4a16(example.input, example.output(), IsaLevel::generic, executor);
  EXPECT_TRUE(report) << report.error().message();
  return report ? *report : W4a16Report{};
}

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// What the kernel multiplies with, element by element, against the meaning of the source.
// bias: e2m1 bits in the activation dtype mean value * 2^-bias.
template <ScaleOrder order>
void expect_same_weights(const W4a16Example& example, const W4a16Example::Matrix& m,
                         RowRotation rows, int bias) {
  const std::int64_t group = w4a16_group_size(example.input.source);
  const bool divides = example.input.source == W4a16Source::compressed_tensors;
  for (std::int64_t e = 0; e < example.experts; ++e) {
    const auto tiles = std::span(m.tiles_out).subspan(at(e * B12xPacked::bytes(m.dims)));
    const auto scales = std::span(m.scales_out).subspan(at(e * m.grid.n * m.grid.k));
    const double global = m.globals[at(e)];
    unpack<B12xPacked>(m.dims, tiles, [&](std::int64_t n, std::int64_t k, std::uint64_t code) {
      const Place scale_place = ByteScaleGrid<order>::place(m.grid, n, k / group);
      const auto byte = std::to_integer<std::uint8_t>(scales[at(scale_place.byte)]);
      const double got = std::ldexp(f4_e2m1_to_f32(static_cast<std::uint8_t>(code)), -bias) *
                         nvfp4_scale_byte_value(byte) * double{m.globals_out[at(e)]};

      const std::int64_t row = e * m.dims.n + rows.source(n);
      const auto pair = std::to_integer<unsigned>(m.codes[at((row * m.dims.k + k) / 2)]);
      const auto source_code = static_cast<std::uint8_t>(k % 2 == 0 ? pair & 15 : pair >> 4);
      const auto scale = std::to_integer<std::uint8_t>(m.scales[at(row * m.grid.k + k / group)]);
      const double weight = double{f4_e2m1_to_f32(source_code)} * f8_e4m3_to_f32(scale);
      const double want = divides ? weight * double{1.0F / float(global)} : weight * global;
      ASSERT_EQ(got, want) << "expert " << e << " n " << n << " k " << k;
    });
  }
}

TEST(PrepareW4a16Test, NothingOfTheWeightsIsLost) {
  for (const W4a16Source source : {W4a16Source::modelopt_nvfp4, W4a16Source::compressed_tensors}) {
    for (const DType dtype : {DType::bf16, DType::f16}) {
      for (const W13Order order : {W13Order::up_gate, W13Order::gate_up}) {
        for (const Gating gating : {Gating::gated, Gating::ungated}) {
          W4a16Input input = sizes(192, gating == Gating::gated ? 96 : 128);
          input.source = source;
          input.activation_dtype = dtype;
          input.w13_order = order;
          input.gating = gating;
          W4a16Example example(input, 2);
          const W4a16Report report = prepare(example);
          EXPECT_EQ(report.w13.flushed_scales, 0);
          const int bias = dtype == DType::bf16 ? 126 : 14;
          const std::int64_t rotation =
              gating == Gating::gated && order == W13Order::up_gate ? input.intermediate_size : 0;
          expect_same_weights<ScaleOrder::grouped>(
              example, example.w13, {.rows = example.w13.dims.n, .shift = rotation}, bias);
          expect_same_weights<ScaleOrder::grouped>(example, example.w2,
                                                   {.rows = example.w2.dims.n, .shift = 0}, bias);
        }
      }
    }
  }
}

TEST(PrepareW4a16Test, PlainAndSwizzledScalesGiveTheSameAndPaddingIsNotRead) {
  W4a16Example swizzled(sizes(128, 96), 3);
  W4a16Example plain(sizes(128, 96), 3);
  plain.input.block_scale_storage = BlockScaleStorage::plain;
  plain.refresh();
  EXPECT_EQ(prepare(swizzled).w2.nan_scales, 0);
  prepare(plain);
  EXPECT_EQ(swizzled.w13.scales_out, plain.w13.scales_out);
  EXPECT_EQ(swizzled.w2.scales_out, plain.w2.scales_out);
  EXPECT_EQ(swizzled.w13.globals_out, plain.w13.globals_out);
}

TEST(PrepareW4a16Test, TilesMayReplaceTheCodes) {
  W4a16Example apart(sizes(128, 64), 3);
  W4a16Example reused(sizes(128, 64), 3);
  prepare(apart);
  W4a16Output output = reused.output();
  output.w13.tiles = reused.w13.codes;
  output.w2.tiles = reused.w2.codes;
  ASSERT_TRUE(prepare_w4a16(reused.input, output, IsaLevel::generic, serial_executor()));
  EXPECT_EQ(reused.w13.codes, apart.w13.tiles_out);
  EXPECT_EQ(reused.w2.codes, apart.w2.tiles_out);
  EXPECT_EQ(reused.w13.scales_out, apart.w13.scales_out);
}

// Of 3 experts with w13 [128, 8] and w2 [128, 4] scales the swizzled form has no padding.
TEST(PrepareW4a16Test, ScalesMayReplaceBlockScalesOfTheSameSize) {
  for (const auto storage : {BlockScaleStorage::plain, BlockScaleStorage::swizzled_128x4}) {
    W4a16Input input = sizes(128, 64);
    input.block_scale_storage = storage;
    W4a16Example apart(input, 3);
    W4a16Example reused(input, 3);
    prepare(apart);
    W4a16Output output = reused.output();
    output.w13.scales = reused.w13.stored_scales;
    output.w2.scales = reused.w2.stored_scales;
    output.w2.global_scales = reused.w2.globals;
    const auto report = prepare_w4a16(reused.input, output, IsaLevel::generic, serial_executor());
    ASSERT_TRUE(report) << report.error().message();
    EXPECT_EQ(reused.w13.stored_scales, apart.w13.scales_out);
    EXPECT_EQ(reused.w2.stored_scales, apart.w2.scales_out);
    EXPECT_EQ(reused.w2.globals, apart.w2.globals_out);
  }
}

TEST(PrepareW4a16Test, ReportsEveryScaleThatTheEncodingChanges) {
  W4a16Example example(sizes(128, 64), 3);
  auto& scales = example.w13.scales;
  for (auto& scale : scales) scale = std::byte{0x38};  // 1.0, so f = 256
  scales[0] = std::byte{0x7f};
  scales[7] = std::byte{0xff};
  scales[9] = std::byte{0xb8};             // -1.0
  scales[11] = std::byte{0x80};            // -0.0 is a plain zero
  example.w2.scales[0] = std::byte{0x7e};  // 448, so f = 1
  example.w2.scales[1] = std::byte{0x01};  // 2^-9 is lost beside it
  example.w13.globals = {1.0F, 0.0F, 16.0F};
  example.w2.globals = {512.0F, 1.0F, std::numeric_limits<float>::quiet_NaN()};
  example.refresh();
  const W4a16Report report = prepare(example);
  EXPECT_EQ(report.w13.factor, 256.0F);
  EXPECT_EQ(report.w13.block_scales, 3 * 128 * 8);
  EXPECT_EQ(report.w13.nan_scales, 2);
  EXPECT_EQ(report.w13.negative_scales, 1);
  EXPECT_EQ(report.w13.flushed_scales, 0);
  EXPECT_EQ(report.w13.nonfinite_globals, 0);
  EXPECT_EQ(report.w2.factor, 1.0F);
  EXPECT_EQ(report.w2.flushed_scales, 1);
  EXPECT_EQ(report.w2.nan_scales, 0);
  EXPECT_EQ(report.w2.nonfinite_globals, 2);  // 512 * 2^119 overflows
  // Row 0 of the source is row 64 of [gate; up]; its NaN is kept as the engines keep it.
  const std::int64_t place = GroupedByteScales::place(example.w13.grid, 64, 0).byte;
  EXPECT_EQ(example.w13.scales_out[at(place)], std::byte{0xff});
}

// Experts are surveyed some at a time: a largest scale that comes last rules those before it, an
// expert of zeros none, whatever the number of threads.
TEST(PrepareW4a16Test, TheLargestScaleOfAnyExpertRulesAll) {
  constexpr std::int64_t experts = 4200;
  const W4a16Input input = sizes(128, 64);  // half a MiB of scales are those of 1024 experts
  W4a16Example example(input, experts);
  const std::size_t one = example.w2.scales.size() / experts;
  for (std::size_t i = 0; i < example.w2.scales.size(); ++i) {
    example.w2.scales[i] = static_cast<std::byte>(i / one / 1024 == 1 ? 0 : 0x10 + i % 8);
  }
  example.w2.scales[(experts - 1) * one + 5] = std::byte{0x78};  // 256: f is 1
  example.refresh();
  EXPECT_EQ(prepare(example).w2.factor, 1.0F);
  const auto serial = example.w2.scales_out;
  const auto pool = make_thread_pool(2);
  ASSERT_TRUE(pool);
  std::ranges::fill(example.w2.scales_out, std::byte{0xee});
  const auto threaded = prepare_w4a16(example.input, example.output(), packing_isa(), **pool);
  ASSERT_TRUE(threaded) << threaded.error().message();
  EXPECT_EQ(threaded->w2.factor, 1.0F);
  EXPECT_EQ(example.w2.scales_out, serial);
  EXPECT_EQ(serial[0], static_cast<std::byte>(nvfp4_scale_byte(f8_e4m3_to_f32(0x10), 1.0F)));
}

// An expert whose scales are all small loses none of them beside one with large ones: with a factor
// each they come back exactly, in both activation types.
TEST(PrepareW4a16Test, AFactorForEachExpertKeepsItsSmallScales) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    W4a16Input input = sizes(128, 64);
    input.activation_dtype = dtype;
    W4a16Example example(input, 3);
    const std::size_t one = example.w2.scales.size() / 3;
    for (std::size_t i = 0; i < one; ++i) {
      example.w2.scales[i] = std::byte{0x7e};                           // 448
      example.w2.scales[one + i] = static_cast<std::byte>(1 + i % 15);  // 2^-9 to below 2^-5
      example.w2.scales[2 * one + i] = static_cast<std::byte>(0x20 + i % 8);
    }
    example.w2.globals = {0.5F, 0.25F, 0.125F};
    example.refresh();
    EXPECT_GT(prepare(example).w2.flushed_scales, 0);
    example.input.factors = W4a16Factors::of_each_expert;
    const W4a16Report report = prepare(example);
    EXPECT_EQ(report.w2.flushed_scales, 0);
    ASSERT_EQ(report.w2.factors.size(), 3U);
    EXPECT_EQ(report.w2.factors[0], 1.0F);
    EXPECT_GE(report.w2.factors[1], 8.0F);
    const float lift = dtype == DType::bf16 ? 0x1p119F : 0x1p7F;
    for (std::size_t e = 0; e < 3; ++e) {
      const auto grid = std::span(example.w2.scales_out).subspan(e * one, one);
      unpack<GroupedByteScales>(
          example.w2.grid, std::span<const std::byte>(grid),
          [&](std::int64_t n, std::int64_t k, std::uint64_t byte) {
            const auto at = e * one + static_cast<std::size_t>(n * example.w2.grid.k + k);
            const float stored =
                f8_e4m3_to_f32(std::to_integer<std::uint8_t>(example.w2.scales[at]));
            const float kernel = nvfp4_scale_byte_value(static_cast<std::uint8_t>(byte)) / 128.0F;
            EXPECT_EQ(kernel * (example.w2.globals_out[e] / lift), stored * example.w2.globals[e]);
          });
    }
  }
}

TEST(PrepareW4a16Test, E8m0ScalesStayBytesAndUseTheSingleOrderForOneGroup) {
  W4a16Input input = sizes(128, 32);
  input.source = W4a16Source::fp4_e8m0_k32;
  input.block_scale_storage = BlockScaleStorage::plain;
  W4a16Example example(input, 2);
  example.w2.scales[5] = std::byte{250};
  example.w2.scales[6] = std::byte{255};
  example.refresh();
  const W4a16Report report = prepare(example);
  EXPECT_EQ(report.w2.clamped_scales, 1);
  EXPECT_EQ(report.w2.nan_scales, 1);
  EXPECT_EQ(example.w2.globals_out, example.w2.globals);
  for (std::int64_t n = 0; n < 128; ++n) {
    const auto source = std::to_integer<std::uint8_t>(example.w2.scales[at(n)]);
    const auto got = example.w2.scales_out[at(SingleByteScales::column(n))];
    EXPECT_EQ(std::to_integer<int>(got), std::min<int>(source, 247)) << n;
  }
  for (std::int64_t n = 0; n < 64; ++n) {
    const std::int64_t row = (n + 32) % 64;
    EXPECT_EQ(example.w13.scales_out[at(3 * 64 + GroupedByteScales::column(n))],
              example.w13.scales[at(row * 4 + 3)])
        << n;
  }
}

TEST(W4a16NamesTest, SourcesInAnyCaseActivationsExactly) {
  EXPECT_EQ(w4a16_source_from_name("ModelOpt_NVFP4").value(), W4a16Source::modelopt_nvfp4);
  EXPECT_EQ(w4a16_source_from_name("compressed_tensors").value(), W4a16Source::compressed_tensors);
  EXPECT_EQ(w4a16_source_from_name("fp4_e8m0_k32").value(), W4a16Source::fp4_e8m0_k32);
  EXPECT_THAT(w4a16_source_from_name("nope").error().what,
              ::testing::AllOf(HasSubstr("'nope'"), HasSubstr("'modelopt_nvfp4'")));
  EXPECT_THAT(w4a16_source_from_name("mxfp4_native").error().what, HasSubstr("mxfp4_native meant"));
  EXPECT_EQ(w4a16_gating("silu").value(), Gating::gated);
  EXPECT_EQ(w4a16_gating("swigluoai_uninterleave").value(), Gating::gated);
  EXPECT_EQ(w4a16_gating("relu2").value(), Gating::ungated);
  EXPECT_EQ(w4a16_gating("gelu").error().code, ErrorCode::unsupported);
  EXPECT_THAT(w4a16_gating("SiLU").error().what, HasSubstr("'SiLU'"));
}

// One wrong thing each: where the error points and the numbers of both sides.
struct BadInput {
  const char* name;
  std::function<void(W4a16Input&)> spoil;
  const char* where;
  const char* found;
  const char* expected;
};

class PrepareW4a16BadInput : public ::testing::TestWithParam<BadInput> {};

TEST_P(PrepareW4a16BadInput, IsRefusedWithNamesAndNumbersAndWritesNothing) {
  W4a16Example example(sizes(128, 64), 2);
  GetParam().spoil(example.input);
  const auto untouched = example.w13.tiles_out;
  const auto result =
      prepare_w4a16(example.input, example.output(), IsaLevel::generic, serial_executor());
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(result.error().where, GetParam().where);
  EXPECT_THAT(result.error().what, HasSubstr(GetParam().found));
  EXPECT_THAT(result.error().what, HasSubstr(GetParam().expected));
  EXPECT_EQ(example.w13.tiles_out, untouched);
}

const BadInput bad_inputs[] = {
    {"CodesDtype", [](W4a16Input& in) { in.w13.codes.dtype = DType::i8; }, "w13 codes", "i8",
     "expected u8"},
    {"CodesRank",
     [](W4a16Input& in) {
       in.w13.codes.shape = {128, 64};
     },
     "w13 codes", "[128, 64]", "[experts, n, k/2]"},
    {"NoExpert", [](W4a16Input& in) { in.w13.codes.shape[0] = 0; }, "w13 codes", "[0, 128, 64]",
     "an expert"},
    {"RowsOfUngated", [](W4a16Input& in) { in.gating = Gating::ungated; }, "w13 codes",
     "[2, 128, 64]", "[2, 64, 64]"},
    {"CodesBytes", [](W4a16Input& in) { in.w2.codes.bytes = in.w2.codes.bytes.first(100); },
     "w2 codes", "holds 100 bytes", "expected 8192"},
    {"ExpertsDiffer", [](W4a16Input& in) { in.w2.codes.shape[0] = 3; }, "w2 codes", "[3, 128, 32]",
     "[2, 128, 32]"},
    {"BlockScaleShape",
     [](W4a16Input& in) {
       in.w13.block_scales.shape = {2, 128, 4};
     },
     "w13 block scales", "[2, 128, 4]", "[2, 128, 8]"},
    {"BlockScaleDtype", [](W4a16Input& in) { in.w2.block_scales.dtype = DType::f32; },
     "w2 block scales", "f32", "expected f8_e4m3"},
    {"GlobalScaleDtype", [](W4a16Input& in) { in.w13.global_scales.dtype = DType::f16; },
     "w13 global scales", "f16", "expected f32"},
    {"GlobalScaleCount", [](W4a16Input& in) { in.w2.global_scales.shape = {1}; },
     "w2 global scales", "[1]", "[2]"},
    {"ActivationDtype", [](W4a16Input& in) { in.activation_dtype = DType::f32; },
     "activation dtype", "f32", "expected bf16 or f16"},
    {"HiddenSize", [](W4a16Input& in) { in.hidden_size = 0; }, "hidden_size", "0", "expected 1 to"},
    {"HugeIntermediateSize", [](W4a16Input& in) { in.intermediate_size = std::int64_t{1} << 62; },
     "intermediate_size", "4611686018427387904", "16777216"},
    {"DeviceMemory", [](W4a16Input& in) { in.w13.codes.device.kind = DeviceKind::cuda; },
     "w13 codes", "device memory", "host memory"},
};

INSTANTIATE_TEST_SUITE_P(Spoiled, PrepareW4a16BadInput, ::testing::ValuesIn(bad_inputs),
                         [](const auto& param) { return std::string(param.param.name); });

TEST(PrepareW4a16Test, SizesThatTilesDoNotDivideAreRefused) {
  const auto refused = [](std::int64_t hidden, std::int64_t intermediate, Gating gating) {
    W4a16Input input = sizes(hidden, intermediate);
    input.gating = gating;
    W4a16Example example(input, 1);
    return plan_w4a16(example.input).error();
  };
  EXPECT_THAT(refused(128, 48, Gating::gated).message(),
              HasSubstr("w13 codes: n x k is 96 x 128, expected multiples of 64 and 16"));
  EXPECT_THAT(refused(128, 40, Gating::ungated).message(), HasSubstr("40 x 128"));
  EXPECT_THAT(refused(96, 64, Gating::gated).message(), HasSubstr("w2 codes: n x k is 96 x 64"));
}

TEST(PrepareW4a16Test, OutputsOfAnotherSizeAndOverlapsAreRefused) {
  W4a16Example example(sizes(128, 64), 2);
  const auto error = [&](const W4a16Output& output) {
    const auto result = prepare_w4a16(example.input, output, IsaLevel::generic, serial_executor());
    return result ? std::string("accepted") : result.error().message();
  };
  W4a16Output output = example.output();
  output.w2.tiles = output.w2.tiles.first(64);
  EXPECT_EQ(error(output), "w2 tiles output: holds 64 bytes, expected 8192");
  output = example.output();
  output.w13.global_scales = output.w13.global_scales.first(1);
  EXPECT_EQ(error(output), "w13 global scales output: holds 4 bytes, expected 8");
  output = example.output();
  output.w13.scales = std::span(example.w13.tiles_out).first(output.w13.scales.size());
  EXPECT_EQ(error(output), "w13 scales output: overlaps the w13 tiles output");
  output = example.output();
  output.w2.tiles = std::span(example.w13.codes).first(output.w2.tiles.size());
  EXPECT_EQ(error(output), "w2 tiles output: overlaps the w13 codes");
  output = example.output();
  output.w2.global_scales = example.w13.globals;
  EXPECT_EQ(error(output), "w2 global scales output: overlaps the w13 global scales");
}

}  // namespace
}  // namespace fewbit
