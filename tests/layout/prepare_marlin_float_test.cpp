// SPDX-License-Identifier: Apache-2.0
#include "layout/prepare_marlin_float.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "core/float_convert.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/backward_executor.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_act8_4bit.hpp"
#include "layout/marlin_scales.hpp"
#include "layout/pack.hpp"
#include "layout/row_major.hpp"
#include "layout/scale_grid.hpp"

namespace fewbit {
namespace {

using ::fewbit::testing::BackwardExecutor;
using ::testing::HasSubstr;

constexpr std::int64_t experts = 2;

TensorView view(DType dtype, Shape shape, std::span<const std::byte> bytes) {
  return {.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .device = {}};
}

std::vector<std::byte> random_bytes(std::int64_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

std::span<const std::byte> share(const Tensor& tensor, std::int64_t expert) {
  const auto bytes = tensor.view.bytes;
  return bytes.subspan(bytes.size() / experts * static_cast<std::size_t>(expert),
                       bytes.size() / experts);
}

struct Mxfp4 {
  Dims dims;
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  std::vector<std::byte> bias;

  Mxfp4(Dims d, std::mt19937_64& random)
      : dims(d),
        codes(random_bytes(experts * d.n * d.k / 2, random)),
        scales(random_bytes(experts * d.n * d.k / 32, random)),
        bias(random_bytes(experts * d.n * 2, random)) {
    for (auto& byte : scales) byte = static_cast<std::byte>(std::to_integer<int>(byte) % 249);
  }
  MarlinMxfp4Matrix matrix() const {
    return {.codes = view(DType::u8, {experts, dims.n, dims.k / 2}, codes),
            .scales = view(DType::f8_e8m0, {experts, dims.n, dims.k / 32}, scales),
            .bias = view(DType::bf16, {experts, dims.n}, bias)};
  }
};

// Codes, scales (plus `lift`) and biases where the closed forms have them.
template <Layout Tiles, Layout Scales>
void expect_mxfp4(const Mxfp4& source, const MarlinFloatResult& result, std::uint64_t lift) {
  const Dims d = source.dims;
  const Dims grid{.n = d.n, .k = d.k / 32};
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto codes = std::span(source.codes).subspan(static_cast<std::size_t>(e * d.n * d.k / 2));
    const auto scales =
        std::span(source.scales).subspan(static_cast<std::size_t>(e * grid.n * grid.k));
    const auto bias = std::span(source.bias).subspan(static_cast<std::size_t>(e * d.n * 2));
    for (std::int64_t n = 0; n < d.n; ++n) {
      for (std::int64_t k = 0; k < d.k; ++k) {
        ASSERT_EQ(read_bits<4>(share(result.words, e), Tiles::place(d, n, k)),
                  read_bits<4>(codes, RowMajor<4>::place(d, n, k)));
        ASSERT_EQ(read_bits<8>(share(result.scales, e), Scales::place(grid, n, k / 32)),
                  read_bits<8>(scales, RowMajor<8>::place(grid, n, k / 32)) + lift);
      }
      ASSERT_EQ(read_bits<16>(share(result.bias, e),
                              MarlinScales<ScaleOrder::single>::place({.n = d.n, .k = 1}, n, 0)),
                read_bits<16>(bias, {.byte = n * 2, .bit = 0}));
    }
  }
}

TEST(PrepareMarlinMxfp4Test, EveryCodeScaleAndBiasIsInItsPlace) {
  std::mt19937_64 random(2);
  BackwardExecutor executor(3);
  for (const Dims d : {Dims{64, 32}, Dims{192, 96}, Dims{320, 224}, Dims{640, 352}}) {
    const Mxfp4 source(d, random);
    const auto wide = prepare_marlin_mxfp4(source.matrix(), d, MarlinActivation::bits16,
                                           MarlinRules::exact, executor);
    ASSERT_TRUE(wide) << wide.error().message();
    if (d.k > 32) {
      expect_mxfp4<B12xPacked, GroupedByteScales>(source, *wide, 0);
    } else {
      expect_mxfp4<B12xPacked, SingleByteScales>(source, *wide, 0);
    }
    const auto narrow = prepare_marlin_mxfp4(source.matrix(), d, MarlinActivation::f8_e4m3,
                                             MarlinRules::exact, executor);
    ASSERT_TRUE(narrow) << narrow.error().message();
    expect_mxfp4<MarlinAct8Of4Bit, MarlinScales<ScaleOrder::single, 8>>(source, *narrow, 6);
    ASSERT_FALSE(HasFailure());
  }
}

TEST(PrepareMarlinMxfp4Test, RefusesWhatKernelsCannotHold) {
  std::mt19937_64 random(3);
  constexpr Dims d{.n = 64, .k = 64};
  Mxfp4 source(d, random);
  source.scales[5] = std::byte{249};
  const auto refusal = [&](MarlinActivation activation, MarlinRules rules) {
    const auto result = prepare_marlin_mxfp4(source.matrix(), d, activation, rules);
    return result ? std::string() : result.error().message();
  };
  EXPECT_EQ(refusal(MarlinActivation::bits16, MarlinRules::exact), "");
  EXPECT_EQ(refusal(MarlinActivation::f8_e4m3, MarlinRules::exact),
            "scales: 1 above 2^121, the largest that FP8 kernels can hold");
  EXPECT_EQ(refusal(MarlinActivation::f8_e4m3, MarlinRules::as_vllm), "");
  source.scales[6] = std::byte{255};
  EXPECT_EQ(refusal(MarlinActivation::f8_e4m3, MarlinRules::as_vllm),
            "scales: 1 above 2^122, the largest that FP8 kernels can hold");
  EXPECT_EQ(refusal(MarlinActivation::int8, MarlinRules::exact),
            "MXFP4 with int8 activations, expected 16 bits or FP8");
  const auto odd = prepare_marlin_mxfp4(source.matrix(), {.n = 64, .k = 48},
                                        MarlinActivation::bits16, MarlinRules::exact);
  EXPECT_EQ(odd.error().message(), "codes: n x k is 64 x 48, expected multiples of 64 and 32");
}

// Bits of an e4m3 moved into a bf16 or f16, as kernels do it, times the prepared scale: the weight.
float kernel_value(std::uint64_t code, std::uint64_t scale, DType dtype) {
  const auto bits = static_cast<unsigned>(code);
  const unsigned sign = (bits & 0x80U) << 8U;
  if (dtype == DType::bf16) {
    const unsigned moved = sign | (bits & 0x7fU) << 4U;
    return bf16_to_f32(static_cast<std::uint16_t>(moved)) *
           bf16_to_f32(static_cast<std::uint16_t>(scale));
  }
  const unsigned moved = sign | (bits & 0x7fU) << 7U;
  return f16_to_f32(static_cast<std::uint16_t>(moved)) *
         f16_to_f32(static_cast<std::uint16_t>(scale));
}

struct Fp8 {
  Dims dims;
  Shape scale_shape;
  std::vector<std::byte> codes;
  std::vector<float> scales;

  Fp8(Dims d, Shape shape, std::mt19937_64& random)
      : dims(d), scale_shape(std::move(shape)), codes(random_bytes(experts * d.n * d.k, random)) {
    for (auto& byte : codes) {
      if ((std::to_integer<int>(byte) & 0x7f) == 0x7f) byte = std::byte{0};  // NaN
    }
    std::int64_t count = 1;
    for (const std::int64_t extent : scale_shape) count *= extent;
    // Powers of two times 1 to 1.75: exact in both 16-bit types.
    for (std::int64_t i = 0; i < count; ++i) {
      scales.push_back(static_cast<float>(4 + i % 4) * (i % 3 == 0 ? 0x1p-8F : 0x1p-6F));
    }
  }
  MarlinFp8Matrix matrix() const {
    return {.codes = view(DType::f8_e4m3, {experts, dims.n, dims.k}, codes),
            .scales = view(DType::f32, scale_shape, std::as_bytes(std::span(scales))),
            .bias = {}};
  }
};

template <ScaleOrder order, class ScaleAt>
void expect_fp8(const Fp8& source, std::int64_t group, DType dtype, const ScaleAt& scale_at) {
  BackwardExecutor executor(3);
  const Dims d = source.dims;
  const auto result = prepare_marlin_fp8(source.matrix(), d, dtype, executor);
  ASSERT_TRUE(result) << result.error().message();
  const Dims grid{.n = d.n, .k = d.k / group};
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto codes = std::span(source.codes).subspan(static_cast<std::size_t>(e * d.n * d.k));
    for (std::int64_t n = 0; n < d.n; ++n) {
      for (std::int64_t k = 0; k < d.k; ++k) {
        const auto code = read_bits<8>(codes, RowMajor<8>::place(d, n, k));
        const auto moved = read_bits<8>(share(result->words, e), Marlin8Bit::place(d, n, k));
        ASSERT_EQ(moved, code);
        const auto scale =
            read_bits<16>(share(result->scales, e), MarlinScales<order>::place(grid, n, k / group));
        ASSERT_EQ(kernel_value(moved, scale, dtype),
                  f8_e4m3_to_f32(static_cast<std::uint8_t>(code)) * scale_at(e, n, k))
            << "code " << code;
      }
    }
  }
}

TEST(PrepareMarlinFp8Test, KernelsDecodeTheWeights) {
  std::mt19937_64 random(4);
  constexpr Dims d{.n = 192, .k = 256};
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Fp8 tensor(d, {experts}, random);
    expect_fp8<ScaleOrder::single>(tensor, d.k, dtype,
                                   [&](std::int64_t e, std::int64_t, std::int64_t) {
                                     return tensor.scales[static_cast<std::size_t>(e)];
                                   });
    const Fp8 channel(d, {experts, d.n}, random);
    expect_fp8<ScaleOrder::single>(channel, d.k, dtype,
                                   [&](std::int64_t e, std::int64_t n, std::int64_t) {
                                     return channel.scales[static_cast<std::size_t>(e * d.n + n)];
                                   });
    const Fp8 blocks(d, {experts, 2, 2}, random);
    expect_fp8<ScaleOrder::grouped>(
        blocks, 128, dtype, [&](std::int64_t e, std::int64_t n, std::int64_t k) {
          return blocks.scales[static_cast<std::size_t>((e * 2 + n / 128) * 2 + k / 128)];
        });
  }
}

TEST(PrepareMarlinFp8Test, RefusesWithNumbers) {
  std::mt19937_64 random(5);
  constexpr Dims d{.n = 64, .k = 48};
  Fp8 source(d, {experts, d.n}, random);
  source.scales[70] = 300.0F;  // times 2^8 is infinite in f16
  EXPECT_THAT(prepare_marlin_fp8(source.matrix(), d, DType::f16).error().message(),
              HasSubstr("scales: expert 1 row 6 has 300.0"));
  EXPECT_EQ(prepare_marlin_fp8(source.matrix(), d, DType::f32).error().message(),
            "activation dtype: f32, expected bf16 or f16");
  const Fp8 blocks(d, {experts, 1, 1}, random);
  EXPECT_EQ(prepare_marlin_fp8(blocks.matrix(), d, DType::bf16).error().message(),
            "scales: of blocks, with k 48, expected a multiple of 128");
  MarlinFp8Matrix matrix = source.matrix();
  matrix.codes.dtype = DType::u8;
  EXPECT_THAT(prepare_marlin_fp8(matrix, d, DType::bf16).error().message(),
              HasSubstr("codes: dtype u8, expected f8_e4m3"));
}

}  // namespace
}  // namespace fewbit
