// SPDX-License-Identifier: Apache-2.0
// A layer of integer words for Marlin means the same weights as before; bad input is refused.
#include "layout/prepare_marlin.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "core/float_convert.hpp"
#include "layout/awq_words.hpp"
#include "layout/b12x_packed.hpp"
#include "layout/backward_executor.hpp"
#include "layout/column_words.hpp"
#include "layout/gptq_words.hpp"
#include "layout/marlin_8bit.hpp"
#include "layout/marlin_act8_4bit.hpp"
#include "layout/marlin_codes.hpp"
#include "layout/marlin_scales.hpp"
#include "layout/marlin_zeros.hpp"
#include "layout/pack.hpp"

namespace fewbit {
namespace {

using ::fewbit::testing::BackwardExecutor;
using ::testing::HasSubstr;

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

// Random words, scales, zero points, bias and groups of two experts.
class Layer {
 public:
  static constexpr std::int64_t experts = 2;

  // w2_groups: of more columns than w2 has, where it is a part of a matrix.
  Layer(WordSource source, int bits, std::int64_t group_size, Dims sizes,
        std::int64_t w2_groups = 0) {
    input.codes = {.source = source, .bits = bits, .activation = MarlinActivation::bits16};
    input.group_size = group_size;
    input.hidden_size = sizes.n;
    input.intermediate_size = sizes.k;
    fill(w13, {.n = 2 * sizes.k, .k = sizes.n}, input.w13);
    fill(w2, {.n = sizes.n, .k = sizes.k}, input.w2, w2_groups);
  }

  struct Matrix {
    Dims dims;
    std::int64_t groups = 1;
    std::vector<std::byte> words, scales, zeros, bias;
    std::vector<std::int32_t> g_idx;
  };

  MarlinInput input;
  Matrix w13;
  Matrix w2;

 private:
  void fill(Matrix& m, Dims dims, MarlinMatrix& to, std::int64_t groups = 0) {
    m.dims = dims;
    m.groups = groups > 0 ? groups : input.group_size == -1 ? 1 : dims.k / input.group_size;
    const std::int64_t bits = input.codes.bits;
    const std::int64_t per_word = 32 / bits;
    const auto bytes = [&](std::vector<std::byte>& buffer, std::int64_t count) {
      buffer.resize(at(count));
      for (auto& byte : buffer) byte = static_cast<std::byte>(random_());
    };
    bytes(m.words, experts * dims.n * dims.k * bits / 8);
    bytes(m.zeros, experts * m.groups * dims.n * bits / 8);
    bytes(m.scales, experts * m.groups * dims.n * 2);
    bytes(m.bias, experts * dims.n * 2);
    for (std::int64_t i = 0; i < experts * dims.k; ++i) {
      m.g_idx.push_back(static_cast<std::int32_t>(random_() % static_cast<unsigned>(m.groups)));
    }
    const Shape words = input.codes.source == WordSource::gptq
                            ? Shape{experts, dims.k / per_word, dims.n}
                            : Shape{experts, dims.k, dims.n / per_word};
    to.words = view(DType::i32, words, m.words);
    to.scales = view(DType::f16, {experts, m.groups, dims.n}, m.scales);
    to.zeros = view(DType::i32, {experts, m.groups, dims.n / per_word}, m.zeros);
    to.bias = view(DType::f16, {experts, dims.n}, m.bias);
    to.g_idx = view(DType::i32, {experts, dims.k}, std::as_bytes(std::span(m.g_idx)));
  }
  static TensorView view(DType dtype, Shape shape, std::span<const std::byte> bytes) {
    return {.dtype = dtype, .shape = std::move(shape), .bytes = bytes, .device = {}};
  }
  std::mt19937 random_{5};
};

std::span<const std::byte> share(std::span<const std::byte> all, std::int64_t expert) {
  return all.subspan(at(expert) * all.size() / 2, all.size() / 2);
}

// Every weight's code, scale and zero point, through the layouts, against the source. Rows of w13
// are two halves that are padded each.
template <class From, class ZerosFrom, class To, ScaleOrder order>
void expect_same(const Layer& layer, const Layer::Matrix& m, const MarlinMatrixResult& result,
                 std::int64_t halves) {
  constexpr int bits = To::bits;
  using Zeros = MarlinZeros<bits, MarlinWordOrder::interleaved>;
  const std::int64_t width = m.dims.n / halves;
  const std::int64_t n_padded = result.bias.view.shape[1];
  const std::int64_t k_padded = result.words.view.shape[1] * 16;
  const Dims to{.n = n_padded, .k = k_padded};
  const Dims to_groups{.n = n_padded, .k = result.scales.view.shape[1]};
  const Dims from_groups{.n = m.dims.n, .k = m.groups};
  for (std::int64_t e = 0; e < 2; ++e) {
    const auto words = share(result.words.view.bytes, e);
    const auto scales = share(result.scales.view.bytes, e);
    const auto zeros = share(result.zeros.view.bytes, e);
    for (std::int64_t n = 0; n < n_padded; ++n) {
      const std::int64_t half = n / (n_padded / halves);
      const std::int64_t row = n % (n_padded / halves);
      for (std::int64_t k = 0; k < k_padded; ++k) {
        const std::uint64_t code = read_bits<bits>(words, To::place(to, n, k));
        const std::int64_t group = layer.input.group_size == -1 ? 0 : k / layer.input.group_size;
        const std::uint64_t scale =
            read_bits<16>(scales, MarlinScales<order>::place(to_groups, n, group));
        const std::uint64_t zero = read_bits<bits>(zeros, Zeros::place(to_groups, n, group));
        if (row >= width || k >= m.dims.k) {
          ASSERT_EQ(code, 0U);
          if (row >= width || group >= m.groups) {
            ASSERT_EQ(scale, 0U) << n << " " << k;
            ASSERT_EQ(zero, 0U);
          }
          continue;
        }
        const std::int64_t source = half * width + row;
        const Place g = ColumnWords<16>::place({.n = m.dims.n * 1, .k = m.groups}, source, group);
        ASSERT_EQ(code, read_bits<bits>(share(m.words, e), From::place(m.dims, source, k)));
        ASSERT_EQ(scale, read_bits<16>(share(m.scales, e), g)) << n << " " << k;
        ASSERT_EQ(zero,
                  read_bits<bits>(share(m.zeros, e), ZerosFrom::place(from_groups, source, group)));
      }
    }
  }
}

TEST(PrepareMarlinTest, NothingOfTheWeightsIsLost) {
  BackwardExecutor executor(3);
  const Layer gptq(WordSource::gptq, 4, 32, {.n = 128, .k = 96});
  const auto a = prepare_marlin(gptq.input, executor);
  ASSERT_TRUE(a) << a.error().message();
  expect_same<GptqWords<4>, ColumnWords<4>, B12xPacked, ScaleOrder::grouped>(gptq, gptq.w13, a->w13,
                                                                             2);
  expect_same<GptqWords<4>, ColumnWords<4>, B12xPacked, ScaleOrder::grouped>(gptq, gptq.w2, a->w2,
                                                                             1);
  const Layer awq(WordSource::awq, 8, -1, {.n = 64, .k = 40});
  const auto b = prepare_marlin(awq.input, executor);
  ASSERT_TRUE(b) << b.error().message();
  expect_same<AwqWords<8>, AwqWords<8>, Marlin8Bit, ScaleOrder::single>(awq, awq.w13, b->w13, 2);
  expect_same<AwqWords<8>, AwqWords<8>, Marlin8Bit, ScaleOrder::single>(awq, awq.w2, b->w2, 1);
}

// Kernels with 8-bit activations are for 4-bit codes: as stored for int8, as e4m3 bits for FP8.
TEST(PrepareMarlinTest, FourBitCodesAreTakenFor8BitActivations) {
  for (const auto activation : {MarlinActivation::int8, MarlinActivation::f8_e4m3}) {
    Layer layer(WordSource::gptq, 4, 32, {.n = 128, .k = 64});
    layer.input.codes.activation = activation;
    layer.input.w13.zeros.reset();
    layer.input.w2.zeros.reset();
    for (Layer::Matrix* m : {&layer.w13, &layer.w2}) {
      for (std::size_t i = 1; i < m->scales.size(); i += 2) m->scales[i] = std::byte{0x28};
    }
    const auto result = prepare_marlin(layer.input, serial_executor());
    ASSERT_TRUE(result) << result.error().message();
    const Dims d = layer.w2.dims;
    for (std::int64_t e = 0; e < 2; ++e) {
      for (std::int64_t i = 0; i < d.n * d.k; ++i) {
        const Element at{.n = i / d.k, .k = i % d.k};
        const auto code = static_cast<unsigned>(
            read_bits<4>(share(layer.w2.words, e), GptqWords<4>::place(d, at.n, at.k)));
        const unsigned want =
            activation == MarlinActivation::int8 ? code : *marlin_fp8_code(code, 8);
        ASSERT_EQ(read_bits<4>(share(result->w2.words.view.bytes, e),
                               MarlinAct8Of4Bit::place(d, at.n, at.k)),
                  want)
            << at.n << " " << at.k;
      }
    }
  }
}

// intermediate_size 128 in groups of 128 beside hidden_size 256: w13 has two groups.
TEST(PrepareMarlinTest, TheOrderOfScalesFollowsTheMatrixAndAsVllmOnRequest) {
  Layer layer(WordSource::gptq, 4, 128, {.n = 256, .k = 128});
  const auto right = prepare_marlin(layer.input, serial_executor());
  ASSERT_TRUE(right) << right.error().message();
  expect_same<GptqWords<4>, ColumnWords<4>, B12xPacked, ScaleOrder::grouped>(layer, layer.w13,
                                                                             right->w13, 2);
  layer.input.rules = MarlinRules::as_vllm;
  const auto vllm = prepare_marlin(layer.input, serial_executor());
  ASSERT_TRUE(vllm);
  expect_same<GptqWords<4>, ColumnWords<4>, B12xPacked, ScaleOrder::single>(layer, layer.w13,
                                                                            vllm->w13, 2);
}

TEST(PrepareMarlinTest, ActOrderOfOneGroupHasTheOrderOfManyAndAsVllmOnRequest) {
  Layer layer(WordSource::gptq, 4, 64, {.n = 128, .k = 64});
  layer.input.row_order = MarlinRowOrder::act_order;
  const Dims grid{.n = 128, .k = 1};
  const auto expect_scales = [&](const auto& place) {
    const auto result = prepare_marlin(layer.input, serial_executor());
    ASSERT_TRUE(result) << result.error().message();
    for (std::int64_t n = 0; n < grid.n; ++n) {
      ASSERT_EQ(read_bits<16>(share(result->w2.scales.view.bytes, 1), place(n)),
                read_bits<16>(share(layer.w2.scales, 1), ColumnWords<16>::place(grid, n, 0)));
    }
  };
  expect_scales([&](auto n) { return MarlinScales<ScaleOrder::grouped>::place(grid, n, 0); });
  layer.input.rules = MarlinRules::as_vllm;
  expect_scales([&](auto n) { return MarlinScales<ScaleOrder::single>::place(grid, n, 0); });
}

TEST(PrepareMarlinTest, ActOrderSortsRowsByGroupAndKeepsTheirCodes) {
  Layer layer(WordSource::gptq, 4, 32, {.n = 128, .k = 64});
  layer.input.row_order = MarlinRowOrder::act_order;
  const auto result = prepare_marlin(layer.input, serial_executor());
  ASSERT_TRUE(result) << result.error().message();
  const Dims d = layer.w13.dims;
  const auto order = typed_span<std::int32_t>(result->w13.order.view);
  const auto g_idx = typed_span<std::int32_t>(result->w13.g_idx.view);
  ASSERT_TRUE(order && g_idx);
  for (std::int64_t e = 0; e < 2; ++e) {
    const auto words = share(result->w13.words.view.bytes, e);
    for (std::int64_t k = 0; k < d.k; ++k) {
      const std::int32_t row = (*order)[at(e * d.k + k)];
      const std::int32_t group = layer.w13.g_idx[at(e * d.k + row)];
      EXPECT_EQ((*g_idx)[at(e * d.k + k)], group);
      if (k > 0) {
        EXPECT_LE((*g_idx)[at(e * d.k + k - 1)], group);
      }
      for (std::int64_t n = 0; n < d.n; ++n) {
        ASSERT_EQ(read_bits<4>(words, B12xPacked::place(d, n, k)),
                  read_bits<4>(share(layer.w13.words, e), GptqWords<4>::place(d, n, row)));
      }
    }
  }
}

// 64 of a matrix's 256 columns, in groups of 32 and of 64: all of its scales and zero points stay.
TEST(PrepareMarlinTest, ActOrderOfAPartOfTheColumnsKeepsAllGroups) {
  for (const std::int64_t group_size : {32, 64}) {
    const std::int64_t groups = 256 / group_size;
    Layer layer(WordSource::gptq, 4, group_size, {.n = 128, .k = 64}, groups);
    layer.input.row_order = MarlinRowOrder::act_order;
    const auto result = prepare_marlin(layer.input, serial_executor());
    ASSERT_TRUE(result) << result.error().message();
    ASSERT_EQ(result->w2.scales.view.shape, (Shape{2, groups, 128}));
    const auto order = typed_span<std::int32_t>(result->w2.order.view);
    const auto g_idx = typed_span<std::int32_t>(result->w2.g_idx.view);
    ASSERT_TRUE(order && g_idx);
    const Dims grid{.n = 128, .k = groups};
    for (std::int64_t e = 0; e < 2; ++e) {
      for (std::int64_t k = 0; k < 64; ++k) {
        const std::int32_t row = (*order)[at(e * 64 + k)];
        EXPECT_EQ((*g_idx)[at(e * 64 + k)], layer.w2.g_idx[at(e * 64 + row)]);
        for (std::int64_t n = 0; n < 128; ++n) {
          ASSERT_EQ(
              read_bits<4>(share(result->w2.words.view.bytes, e),
                           B12xPacked::place(layer.w2.dims, n, k)),
              read_bits<4>(share(layer.w2.words, e), GptqWords<4>::place(layer.w2.dims, n, row)));
        }
      }
      using Zeros = MarlinZeros<4, MarlinWordOrder::interleaved>;
      for (std::int64_t g = 0; g < groups; ++g) {
        for (std::int64_t n = 0; n < 128; ++n) {
          ASSERT_EQ(read_bits<16>(share(result->w2.scales.view.bytes, e),
                                  MarlinScales<ScaleOrder::grouped>::place(grid, n, g)),
                    read_bits<16>(share(layer.w2.scales, e), ColumnWords<16>::place(grid, n, g)));
          ASSERT_EQ(read_bits<4>(share(result->w2.zeros.view.bytes, e), Zeros::place(grid, n, g)),
                    read_bits<4>(share(layer.w2.zeros, e), ColumnWords<4>::place(grid, n, g)));
        }
      }
    }
  }
}

class PrepareMarlinErrors : public ::testing::Test {
 protected:
  std::string refusal() const {
    const auto result = prepare_marlin(layer_.input, serial_executor());
    return result ? "" : result.error().message();
  }
  Layer layer_{WordSource::gptq, 4, 32, {.n = 128, .k = 96}};
};

TEST_F(PrepareMarlinErrors, KindsThatNoKernelHas) {
  layer_.input.row_order = MarlinRowOrder::act_order;
  EXPECT_EQ(refusal(),
            "intermediate_size: 96 needs padding to 128, which act-order does not allow");
  layer_.input.codes.activation = MarlinActivation::int8;
  EXPECT_EQ(refusal(), "act-order with 8-bit activations");
  layer_.input.row_order = MarlinRowOrder::stored;
  layer_.input.codes = {WordSource::gptq, 8, MarlinActivation::f8_e4m3};
  EXPECT_EQ(refusal(), "8-bit codes with FP8 activations, expected 4 bits");
  layer_.input.codes = {WordSource::gptq, 3, MarlinActivation::bits16};
  EXPECT_EQ(refusal(), "w13 words: 3 bits, expected 4 or 8");
}

TEST_F(PrepareMarlinErrors, SizesWithBothNumbers) {
  layer_.input.group_size = 64;
  EXPECT_EQ(refusal(), "w2: k is 96 in groups of 64, expected a group size that divides it, or -1");
  layer_.input.group_size = 32;
  layer_.input.w2.scales.shape = {2, 4, 128};
  EXPECT_THAT(refusal(), HasSubstr("w2 scales: shape [2, 4, 128], expected [2, 3, 128]"));
  layer_.input.w13.words.dtype = DType::u32;
  EXPECT_EQ(refusal(), "w13 words: dtype u32, expected i32");
  const Layer narrow(WordSource::gptq, 4, 32, {.n = 96, .k = 64});
  EXPECT_EQ(prepare_marlin(narrow.input, serial_executor()).error().message(),
            "w2 words: n x k is 96 x 64, expected multiples of 64 and 16");
}

TEST_F(PrepareMarlinErrors, GroupsOutsideTheScales) {
  Layer layer(WordSource::gptq, 4, 32, {.n = 128, .k = 64});
  layer.input.row_order = MarlinRowOrder::act_order;
  layer.w2.g_idx[64 + 5] = 2;
  EXPECT_EQ(prepare_marlin(layer.input, serial_executor()).error().message(),
            "w2 g_idx: expert 1 names group 2, expected 0 to 1");
  layer.input.w2.scales.shape = {2, 1, 128};
  EXPECT_EQ(prepare_marlin(layer.input, serial_executor()).error().message(),
            "w2 scales: 1 groups, expected at least 2 for k 64 in groups of 32");
}

TEST_F(PrepareMarlinErrors, CodesThatFp8KernelsCannotHave) {
  layer_.input.codes.activation = MarlinActivation::f8_e4m3;
  std::ranges::fill(layer_.w13.scales, std::byte{0});
  std::ranges::fill(layer_.w2.scales, std::byte{0});
  std::ranges::fill(layer_.w13.words, std::byte{0x88});
  std::ranges::fill(layer_.w13.zeros, std::byte{0x88});
  std::ranges::fill(layer_.w2.words, std::byte{0x7f});
  std::ranges::fill(layer_.w2.zeros, std::byte{0x77});
  // 15 - 7: every other one of 128 x 96 codes.
  EXPECT_EQ(refusal(),
            "w2 words: 6144 codes of expert 0 are not -8 to 7 from their zero points, as FP8 "
            "kernels need them");
  layer_.input.rules = MarlinRules::as_vllm;
  EXPECT_EQ(refusal(), "");
}

TEST_F(PrepareMarlinErrors, ScalesThatFp8KernelsCannotHave) {
  layer_.input.rules = MarlinRules::as_vllm;
  std::ranges::fill(layer_.w13.scales, std::byte{0x70});  // 8832 as f16
  layer_.input.codes.activation = MarlinActivation::f8_e4m3;
  EXPECT_THAT(refusal(), HasSubstr("times 512 is beyond f16"));
}

}  // namespace
}  // namespace fewbit
