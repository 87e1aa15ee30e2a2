// SPDX-License-Identifier: Apache-2.0
// The reference backend through MoeLayer and LinearLayer, against the formulas in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "backends/moe_case.hpp"
#include "backends/rounding_bound.hpp"
#include "core/aligned_buffer.hpp"
#include "fewbit/linear.hpp"
#include "moe/activation.hpp"

namespace fewbit {
namespace {

using test::Call;
using test::LayerSpec;
using testing::ElementsAre;

void expect_within_bound(const MoeProblem& problem, const MoeWeights& weights, const Call& call) {
  const auto layer = test::prepare("reference", problem, weights, test::generic_cpu());
  ASSERT_TRUE(layer) << layer.error().message();
  const auto bytes = test::run(*layer, call);
  ASSERT_TRUE(bytes) << bytes.error().message();
  const std::vector<float> out = test::to_f32(problem.activation_dtype, *bytes);
  const MoeReferenceResult want = test::expected(problem, weights, call);
  const auto bound = test::rounding_bound(problem, weights, test::input_of(call), want);
  ASSERT_TRUE(bound) << bound.error().message();
  ASSERT_EQ(out.size(), want.out.size());
  for (std::size_t i = 0; i < out.size(); ++i) {
    ASSERT_LE(std::abs(out[i] - want.out[i]), (*bound)[i])
        << "element " << i << ": " << out[i] << ", want " << want.out[i] << ", tokens "
        << call.tokens;
  }
}

constexpr Activation all_activations[] = {Activation::silu, Activation::swigluoai,
                                          Activation::relu2, Activation::gelu,
                                          Activation::gelu_tanh};

TEST(ReferenceMoe, AnyNumberOfTokens) {
  for (const DType weight : {DType::f4_e2m1, DType::bf16}) {
    const LayerSpec spec{.experts = 8, .weight = weight, .activation = {}};
    const MoeWeights weights = test::random_weights(spec);
    for (const std::int64_t tokens :
         {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
      const MoeProblem problem = test::problem_of(spec, 2, 129);
      expect_within_bound(problem, weights, test::random_call(problem, tokens, 3));
    }
  }
}

TEST(ReferenceMoe, EveryActivationDtypeSchemeAndRouterWeightSide) {
  for (const Activation kind : all_activations) {
    for (const DType weight : {DType::f4_e2m1, DType::bf16, DType::f16, DType::f32}) {
      LayerSpec spec{.weight = weight, .activation = {.kind = kind}};
      if (kind == Activation::swigluoai) {
        spec.activation = {.kind = kind, .alpha = 1.702F, .beta = 1, .limit = 0.5F};
      }
      const MoeWeights weights = test::random_weights(spec);
      for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
        for (const auto side : {RouterWeightSide::output, RouterWeightSide::input}) {
          MoeProblem problem = test::problem_of(spec, 3, 5);
          problem.activation_dtype = dtype;
          problem.router_weight_side = side;
          expect_within_bound(problem, weights, test::random_call(problem, 5, 4));
        }
      }
    }
  }
}

// Sizes that divide by nothing: one column, odd sizes, a short last scale group.
TEST(ReferenceMoe, AnyShape) {
  struct Sizes {
    std::int64_t hidden, intermediate;
  };
  for (const Sizes sizes : {Sizes{1, 1}, Sizes{7, 3}, Sizes{33, 31}}) {
    const LayerSpec spec{.hidden_size = sizes.hidden,
                         .intermediate_size = sizes.intermediate,
                         .weight = DType::f32,
                         .activation = {}};
    const MoeProblem problem = test::problem_of(spec, 2, 3);
    expect_within_bound(problem, test::random_weights(spec), test::random_call(problem, 3, 8));
  }
  const LayerSpec spec{
      .hidden_size = 18, .intermediate_size = 34, .weight = DType::f4_e2m1, .activation = {}};
  const MoeProblem problem = test::problem_of(spec, 2, 3);
  expect_within_bound(problem, test::random_weights(spec), test::random_call(problem, 3, 8));
}

TEST(ReferenceMoe, DroppedDuplicateAndCrowdedExperts) {
  const LayerSpec spec{.weight = DType::f4_e2m1, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  const MoeProblem problem = test::problem_of(spec, 2, 6);
  Call call = test::random_call(problem, 6, 9);
  call.ids = {2, 2, -1, 2, 4, -1, 100, INT32_MIN, 2, 0, 2, 2};
  expect_within_bound(problem, weights, call);
  call.ids.assign(12, 1);  // one expert with every route
  expect_within_bound(problem, weights, call);
  call.ids.assign(12, -1);
  expect_within_bound(problem, weights, call);
}

TEST(ReferenceMoe, ExpertMapNamesLocalExperts) {
  const LayerSpec spec{.weight = DType::bf16, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  MoeProblem problem = test::problem_of(spec, 2, 4);
  problem.expert_map = true;
  Call call = test::random_call(problem, 4, 10);
  call.expert_map = {-1, 3, 0, -1, 1, 2, 4};
  call.ids = {0, 1, 2, 3, 4, 5, 6, 7};
  expect_within_bound(problem, weights, call);
}

TEST(ReferenceMoe, ParameterisedSwigluThroughTheLayer) {
  MoeWeights weights{.hidden_size = 1, .intermediate_size = 1, .experts = {}};
  weights.experts.push_back({.gate = test::f32_matrix(1, 1, {9}),
                             .up = test::f32_matrix(1, 1, {-9}),
                             .down = test::f32_matrix(1, 1, {1})});
  MoeProblem problem = test::problem_of(
      {.experts = 1,
       .hidden_size = 1,
       .intermediate_size = 1,
       .weight = DType::f32,
       .activation = {.kind = Activation::swigluoai, .alpha = 1.702F, .beta = 1, .limit = 7.0F}},
      1, 1);
  problem.activation_dtype = DType::f32;
  const auto layer = test::prepare("reference", problem, weights, test::generic_cpu());
  const Call call{.tokens = 1, .hidden = {1}, .ids = {0}, .weights = {1}, .expert_map = {}};
  EXPECT_NEAR(test::to_f32(DType::f32, *test::run(*layer, call))[0], -41.99972, 5e-6);
}

TEST(ReferenceMoe, SameBitsForAnyNumberOfThreads) {
  const LayerSpec spec{.experts = 8, .weight = DType::f4_e2m1, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  MoeProblem problem = test::problem_of(spec, 2, 33);
  problem.activation_dtype = DType::f32;
  const auto layer = test::prepare("reference", problem, weights, test::generic_cpu());
  const Call call = test::random_call(problem, 33, 5);
  const auto serial = test::run(*layer, call);
  for (int threads = 1; threads <= 4; ++threads) {
    const auto pool = make_thread_pool(threads);
    ASSERT_TRUE(pool);
    EXPECT_EQ(*test::run(*layer, call, **pool), *serial) << threads << " threads";
  }
}

TEST(ReferenceMoe, ATokenAloneGivesTheBitsThatItHasInABatch) {
  const LayerSpec spec{.experts = 8, .weight = DType::bf16, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  MoeProblem problem = test::problem_of(spec, 2, 64);
  problem.activation_dtype = DType::f32;
  const auto layer = test::prepare("reference", problem, weights, test::generic_cpu());
  const Call batch = test::random_call(problem, 64, 6);
  const auto all = test::to_f32(DType::f32, *test::run(*layer, batch));
  for (const std::size_t token : {0U, 17U, 63U}) {
    const auto part = [&](const auto& values, std::size_t width) {
      const auto begin = values.begin() + static_cast<std::ptrdiff_t>(token * width);
      return std::decay_t<decltype(values)>(begin, begin + static_cast<std::ptrdiff_t>(width));
    };
    const Call alone{.tokens = 1,
                     .hidden = part(batch.hidden, 32),
                     .ids = part(batch.ids, 2),
                     .weights = part(batch.weights, 2),
                     .expert_map = {}};
    EXPECT_EQ(test::to_f32(DType::f32, *test::run(*layer, alone)), part(all, 32));
  }
}

TEST(ReferenceMoe, AmaxIsRaisedInItsLayerOnly) {
  MoeWeights weights{.hidden_size = 1, .intermediate_size = 1, .experts = {}};
  for (int e = 0; e < 2; ++e) {
    weights.experts.push_back({.gate = std::nullopt,
                               .up = test::f32_matrix(1, 1, {1}),
                               .down = test::f32_matrix(1, 1, {1})});
  }
  MoeProblem problem = test::problem_of({.experts = 2,
                                         .hidden_size = 1,
                                         .intermediate_size = 1,
                                         .weight = DType::f32,
                                         .activation = {.kind = Activation::relu2}},
                                        1, 3);
  const auto layer = test::prepare("reference", problem, weights, test::generic_cpu());
  const Call call{.tokens = 3,
                  .hidden = {2, -3, 50},
                  .ids = {1, 1, -1},
                  .weights = {1, 1, 1},
                  .expert_map = {}};
  // Two layers of a table with three experts; entries of layer 1 follow six of layer 0.
  std::vector<float> table{9, 9, 9, 9, 9, 9, 0.5F, 0.5F, 1, 7, 9, 9};
  ASSERT_TRUE(test::run(*layer, call, serial_executor(),
                        AmaxTable{.values = table, .layers = 2, .experts = 3, .layer = 1}));
  EXPECT_THAT(table, ElementsAre(9, 9, 9, 9, 9, 9, 0.5F, 0.5F, 3, 7, 9, 9));
}

TEST(ReferenceMoe, HoldsTheTensorsInPlaceAndOnlyTheOnesThatAreThere) {
  const LayerSpec spec{.experts = 3,
                       .hidden_size = 32,
                       .intermediate_size = 16,
                       .weight = DType::bf16,
                       .activation = {.kind = Activation::relu2}};
  const MoeProblem problem = test::problem_of(spec, 1, 1);
  const auto layer =
      test::prepare("reference", problem, test::random_weights(spec), test::generic_cpu());
  const PreparedInfo info = layer->info();
  EXPECT_EQ(info.backend, "reference");
  EXPECT_EQ(info.layout, "row_major");
  EXPECT_EQ(info.owned_bytes, 0U);
  EXPECT_EQ(info.mapped_bytes, 3U * (32 * 16 + 16 * 32) * 2);
  // The weights of the call above are gone; the layer keeps their memory.
  EXPECT_TRUE(test::run(*layer, test::random_call(problem, 1, 1)));
}

TEST(ReferenceMoe, NanScalesSpoilOnlyTheirOwnExpert) {
  const LayerSpec spec{.experts = 2, .weight = DType::f4_e2m1, .activation = {}};
  MoeWeights weights = test::random_weights(spec);
  const auto bytes = weights.experts[1].down.scales.view.bytes.size();
  weights.experts[1].down.scales =
      test::owned_tensor(DType::f8_e4m3, {}, std::vector<std::uint8_t>(bytes, 0x7f));
  const MoeProblem problem = test::problem_of(spec, 1, 2);
  const auto layer = test::prepare("reference", problem, weights, test::generic_cpu());
  Call call = test::random_call(problem, 2, 2);
  call.ids = {0, 1};
  const auto out = test::to_f32(DType::bf16, *test::run(*layer, call));
  for (std::size_t h = 0; h < 32; ++h) {
    EXPECT_FALSE(std::isnan(out[h]));
    EXPECT_TRUE(std::isnan(out[32 + h]));
  }
}

// Rows of codes are whole bytes, whatever is left of the last one.
TEST(ReferenceLinear, TakesFourBitRowsOfOddLength) {
  AlignedBuffer memory = *AlignedBuffer::allocate(64);
  const auto fill = [&](std::size_t at, std::span<const std::byte> from) {
    std::ranges::copy(from, memory.span().begin() + static_cast<std::ptrdiff_t>(at));
    return std::span<const std::byte>(memory.span()).subspan(at, from.size());
  };
  const std::uint8_t codes[] = {0x21, 0x03, 0x54, 0x06};  // 1 2 3 and 4 5 6
  const float scales[] = {1.0F, 2.0F};
  QuantizedTensor w;
  w.n = 2;
  w.k = 3;
  w.scheme.weight = DType::u4;
  w.scheme.packing = Packing::words_row;
  w.scheme.scale = ScaleSpec{.dtype = DType::f32, .granularity = {.rows = 1, .cols = 0}};
  w.scheme.zero_point = 8;
  w.codes.view = {.dtype = DType::u4,
                  .shape = {2, 3},
                  .bytes = fill(0, std::as_bytes(std::span(codes))),
                  .device = {}};
  w.scales.view = {.dtype = DType::f32,
                   .shape = {2, 1},
                   .bytes = fill(16, std::as_bytes(std::span(scales))),
                   .device = {}};
  const LinearProblem problem{.n = 2,
                              .k = 3,
                              .weight = w.scheme,
                              .activation_dtype = DType::f32,
                              .output_dtype = DType::f32,
                              .max_tokens = 1,
                              .where = "test linear"};
  const auto prepared = [&] {
    return LinearLayer::prepare(problem, w, test::generic_cpu(), {.backend = "reference"},
                                serial_executor());
  };
  const auto layer = prepared();
  ASSERT_TRUE(layer) << layer.error().message();
  AlignedBuffer workspace = *AlignedBuffer::allocate(*layer->workspace_bytes(1));
  const float tokens[] = {1.0F, 2.0F, 4.0F};
  const TensorView x{.dtype = DType::f32,
                     .shape = {1, 3},
                     .bytes = std::as_bytes(std::span(tokens)),
                     .device = {}};
  std::vector<std::byte> y(2 * sizeof(float));
  ASSERT_TRUE(layer->run(1, x, y, workspace.span(), serial_executor()));
  EXPECT_THAT(test::to_f32(DType::f32, y), ElementsAre(-39.0F, -36.0F));
  w.codes.view.bytes = w.codes.view.bytes.first(3);
  const auto cut = prepared();
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().what, "3 bytes, expected 4 (u4 [2, 3])");
}

TEST(ReferenceLinear, AgreesWithPlainSumsForEveryDtype) {
  const LayerSpec spec{
      .hidden_size = 18, .intermediate_size = 6, .weight = DType::f4_e2m1, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  const QuantizedTensor& w = weights.experts[0].up;  // [6, 18]
  std::vector<float> dense(6 * 18);
  ASSERT_TRUE(dequantize_rows(w, 0, dense));
  const Call call = test::random_call(test::problem_of(spec, 1, 3), 3, 1);
  for (const DType output : {DType::f32, DType::bf16, DType::f16}) {
    const LinearProblem problem{.n = 6,
                                .k = 18,
                                .weight = w.scheme,
                                .activation_dtype = DType::f32,
                                .output_dtype = output,
                                .max_tokens = 3,
                                .where = "test linear"};
    const auto layer = LinearLayer::prepare(problem, w, test::generic_cpu(),
                                            {.backend = "reference"}, serial_executor());
    ASSERT_TRUE(layer) << layer.error().message();
    AlignedBuffer workspace = *AlignedBuffer::allocate(*layer->workspace_bytes(3));
    std::vector<std::byte> y(18 * static_cast<std::size_t>(dtype_bits(output)) / 8);
    const TensorView x{.dtype = DType::f32,
                       .shape = {3, 18},
                       .bytes = std::as_bytes(std::span(call.hidden)),
                       .device = {}};
    ASSERT_TRUE(layer->run(3, x, y, workspace.span(), serial_executor()));
    const std::vector<float> got = test::to_f32(output, y);
    const double unit = std::ldexp(1.0, output == DType::f32    ? -24
                                        : output == DType::bf16 ? -8
                                                                : -11);
    for (std::size_t t = 0; t < 3; ++t) {
      for (std::size_t n = 0; n < 6; ++n) {
        double sum = 0;
        double magnitude = 0;
        for (std::size_t k = 0; k < 18; ++k) {
          const double product = double{call.hidden[t * 18 + k]} * double{dense[n * 18 + k]};
          sum += product;
          magnitude += std::abs(product);
        }
        // 2^-23: the dense weights were rounded to f32 twice.
        EXPECT_NEAR(got[t * 6 + n], sum, unit * std::abs(sum) + std::ldexp(magnitude, -23));
      }
    }
  }
}

}  // namespace
}  // namespace fewbit
