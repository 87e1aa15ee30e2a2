// SPDX-License-Identifier: Apache-2.0
// The CPU backends through MoeLayer, against the formulas in double.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backends/accumulation_bound.hpp"
#include "backends/moe_case.hpp"
#include "backends/rounding_bound.hpp"
#include "kernels/levels.hpp"
#include "layout/cpu_lane16.hpp"

namespace fewbit {
namespace {

using test::Call;
using test::LayerSpec;

std::string backend_of(IsaLevel level) { return std::string("cpu_") + isa_name(level); }

class CpuMoe : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override { FEWBIT_SKIP_UNUSABLE(GetParam()); }

  static Result<MoeLayer> prepare(const MoeProblem& problem, const MoeWeights& weights,
                                  Executor& executor = serial_executor()) {
    return test::prepare(backend_of(GetParam()), problem, weights, *detect_cpu(), executor);
  }

  static void expect_within_bound(const MoeProblem& problem, const MoeWeights& weights,
                                  const Call& call, Executor& executor = serial_executor()) {
    const auto layer = prepare(problem, weights, executor);
    ASSERT_TRUE(layer) << layer.error().message();
    const auto bytes = test::run(*layer, call, executor);
    ASSERT_TRUE(bytes) << bytes.error().message();
    const std::vector<float> out = test::to_f32(problem.activation_dtype, *bytes);
    const MoeReferenceResult want = test::expected(problem, weights, call);
    const auto rounding = test::rounding_bound(problem, weights, test::input_of(call), want);
    ASSERT_TRUE(rounding) << rounding.error().message();
    const auto accumulation = test::accumulation_bound(problem, weights, call, want);
    ASSERT_EQ(out.size(), want.out.size());
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_LE(std::abs(out[i] - want.out[i]), (*rounding)[i] + accumulation[i])
          << "element " << i << ": " << out[i] << ", want " << want.out[i] << ", tokens "
          << call.tokens;
      error += (out[i] - want.out[i]) * (out[i] - want.out[i]);
      norm += want.out[i] * want.out[i];
    }
    // The layer as a whole: two roundings to the type, or f32 noise.
    const double unit = problem.activation_dtype == DType::f32    ? 0x1p-20
                        : problem.activation_dtype == DType::bf16 ? 0x1p-8
                                                                  : 0x1p-11;
    EXPECT_LE(std::sqrt(error), unit * std::sqrt(norm)) << call.tokens << " tokens";
  }
};

TEST_P(CpuMoe, AnyNumberOfTokens) {
  for (const DType weight : {DType::f4_e2m1, DType::bf16}) {
    const LayerSpec spec{.experts = 8, .weight = weight, .activation = {}};
    const MoeWeights weights = test::random_weights(spec);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const std::int64_t tokens :
           {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
        MoeProblem problem = test::problem_of(spec, 2, 129);
        problem.activation_dtype = dtype;
        expect_within_bound(problem, weights, test::random_call(problem, tokens, 3));
      }
    }
  }
}

TEST_P(CpuMoe, EveryActivationDtypeSchemeAndRouterWeightSide) {
  for (const Activation kind : {Activation::silu, Activation::swigluoai, Activation::relu2,
                                Activation::gelu, Activation::gelu_tanh}) {
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

// Sizes off the block of 16 where the layout allows it, and long odd ones.
TEST_P(CpuMoe, AnyShape) {
  struct Sizes {
    std::int64_t hidden, intermediate;
    DType weight;
  };
  for (const Sizes& s :
       {Sizes{1, 1, DType::f32}, Sizes{7, 3, DType::bf16}, Sizes{33, 31, DType::f16},
        Sizes{16, 16, DType::f4_e2m1}, Sizes{464, 48, DType::f4_e2m1},
        Sizes{80, 464, DType::f4_e2m1}, Sizes{160, 2688, DType::f4_e2m1},
        Sizes{2880, 48, DType::f4_e2m1}, Sizes{2880, 17, DType::bf16}}) {
    const LayerSpec spec{.experts = 2,
                         .hidden_size = s.hidden,
                         .intermediate_size = s.intermediate,
                         .weight = s.weight,
                         .activation = {}};
    MoeProblem problem = test::problem_of(spec, 2, 3);
    problem.activation_dtype = DType::f32;
    expect_within_bound(problem, test::random_weights(spec), test::random_call(problem, 3, 8));
  }
}

TEST_P(CpuMoe, DroppedDuplicateAndCrowdedExperts) {
  const LayerSpec spec{.weight = DType::f4_e2m1, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  const MoeProblem problem = test::problem_of(spec, 2, 40);
  Call call = test::random_call(problem, 6, 9);
  call.ids = {2, 2, -1, 2, 4, -1, 100, INT32_MIN, 2, 0, 2, 2};
  expect_within_bound(problem, weights, call);
  call.ids.assign(12, -1);
  expect_within_bound(problem, weights, call);
  Call crowded = test::random_call(problem, 40, 10);  // one expert with every route
  crowded.ids.assign(80, 1);
  expect_within_bound(problem, weights, crowded);
}

TEST_P(CpuMoe, ExpertMapNamesLocalExperts) {
  const LayerSpec spec{.weight = DType::f4_e2m1, .activation = {}};
  MoeProblem problem = test::problem_of(spec, 2, 4);
  problem.expert_map = true;
  Call call = test::random_call(problem, 4, 10);
  call.expert_map = {-1, 3, 0, -1, 1, 2, 4};
  call.ids = {0, 1, 2, 3, 4, 5, 6, 7};
  expect_within_bound(problem, test::random_weights(spec), call);
}

// Tokens beyond one pass over the workspace, and a workspace that stops growing with them.
TEST_P(CpuMoe, CallsLongerThanAPass) {
  const LayerSpec spec{.experts = 3,
                       .hidden_size = 16,
                       .intermediate_size = 16,
                       .weight = DType::f4_e2m1,
                       .activation = {}};
  const MoeProblem problem = test::problem_of(spec, 2, 4000);
  const MoeWeights weights = test::random_weights(spec);
  expect_within_bound(problem, weights, test::random_call(problem, 2500, 11));
  const auto layer = prepare(problem, weights);
  EXPECT_EQ(*layer->workspace_bytes(2500), *layer->workspace_bytes(4000));
}

TEST_P(CpuMoe, SameBitsForAnyNumberOfThreads) {
  for (const DType weight : {DType::f4_e2m1, DType::bf16}) {
    const LayerSpec spec{.experts = 8,
                         .hidden_size = 512,
                         .intermediate_size = 80,
                         .weight = weight,
                         .activation = {}};
    const MoeWeights weights = test::random_weights(spec);
    MoeProblem problem = test::problem_of(spec, 2, 130);
    problem.activation_dtype = DType::f32;
    const auto layer = prepare(problem, weights);
    for (const std::int64_t tokens : {1, 5, 130}) {
      const Call call = test::random_call(problem, tokens, 5);
      const auto serial = test::run(*layer, call);
      for (int threads = 1; threads <= 4; ++threads) {
        const auto pool = make_thread_pool(threads);
        ASSERT_TRUE(pool);
        EXPECT_EQ(*test::run(*layer, call, **pool), *serial)
            << threads << " threads, " << tokens << " tokens";
      }
    }
  }
}

TEST_P(CpuMoe, ATokenAloneGivesTheBitsThatItHasInABatch) {
  for (const DType weight : {DType::f4_e2m1, DType::bf16}) {
    const LayerSpec spec{.experts = 8, .weight = weight, .activation = {}};
    MoeProblem problem = test::problem_of(spec, 2, 129);
    problem.activation_dtype = DType::f32;
    const auto layer = prepare(problem, test::random_weights(spec));
    const Call batch = test::random_call(problem, 129, 6);
    const auto all = test::to_f32(DType::f32, *test::run(*layer, batch));
    for (std::size_t token = 0; token < 129; token += 16) {
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
}

TEST_P(CpuMoe, AmaxIsRaisedInItsLayerOnly) {
  const LayerSpec spec{.experts = 2, .weight = DType::f4_e2m1, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  MoeProblem problem = test::problem_of(spec, 1, 3);
  problem.activation_dtype = DType::f32;
  Call call = test::random_call(problem, 3, 12);
  call.ids = {1, 1, -1};
  call.hidden[2 * 32] = 1e6F;  // of the dropped token
  const auto want = test::expected(problem, weights, call).amax;
  // Two layers of a table with three experts.
  std::vector<float> table(12, 900.0F);
  table[6] = table[7] = table[8] = 0.0F;
  const auto layer = prepare(problem, weights);
  ASSERT_TRUE(test::run(*layer, call, serial_executor(),
                        AmaxTable{.values = table, .layers = 2, .experts = 3, .layer = 1}));
  EXPECT_EQ(table[6], 0.0F);
  EXPECT_EQ(table[7], 0.0F);
  EXPECT_EQ(table[8], want[2]);
  EXPECT_EQ(table[9], 900.0F);
  table[9] = 0.0F;
  ASSERT_TRUE(test::run(*layer, call, serial_executor(),
                        AmaxTable{.values = table, .layers = 2, .experts = 3, .layer = 1}));
  EXPECT_NEAR(table[9], want[3], 1e-5F * want[3]);
  EXPECT_EQ(std::accumulate(table.begin(), table.begin() + 6, 0.0F), 6 * 900.0F);
}

TEST_P(CpuMoe, NanScalesSpoilOnlyTheirOwnExpert) {
  const LayerSpec spec{.experts = 2, .weight = DType::f4_e2m1, .activation = {}};
  MoeWeights weights = test::random_weights(spec);
  const auto bytes = weights.experts[1].down.scales.view.bytes.size();
  weights.experts[1].down.scales =
      test::owned_tensor(DType::f8_e4m3, {}, std::vector<std::uint8_t>(bytes, 0x7f));
  const MoeProblem problem = test::problem_of(spec, 1, 2);
  const auto layer = prepare(problem, weights);
  Call call = test::random_call(problem, 2, 2);
  call.ids = {0, 1};
  const auto out = test::to_f32(DType::bf16, *test::run(*layer, call));
  for (std::size_t h = 0; h < 32; ++h) {
    EXPECT_FALSE(std::isnan(out[h]));
    EXPECT_TRUE(std::isnan(out[32 + h]));
  }
}

TEST_P(CpuMoe, PacksF4OnceAndReads16BitWeightsInPlace) {
  LayerSpec spec{.experts = 3,
                 .hidden_size = 64,
                 .intermediate_size = 48,
                 .weight = DType::f4_e2m1,
                 .activation = {}};
  const MoeProblem packed = test::problem_of(spec, 1, 1);
  PreparedInfo info = prepare(packed, test::random_weights(spec))->info();
  EXPECT_EQ(info.backend, backend_of(GetParam()));
  EXPECT_EQ(info.layout, "cpu_f4_lane16");
  EXPECT_EQ(info.mapped_bytes, 0U);
  EXPECT_EQ(info.owned_bytes, 3U * 3 * (64 * 48 / 2 + 64 * 48 / 16));

  spec.weight = DType::bf16;
  const MoeProblem plain = test::problem_of(spec, 1, 1);
  const auto layer = prepare(plain, test::random_weights(spec));
  info = layer->info();
  EXPECT_EQ(info.layout, "row_major");
  EXPECT_EQ(info.owned_bytes, 0U);
  EXPECT_EQ(info.mapped_bytes, 3U * 3 * 64 * 48 * 2);
  // The weights of the call above are gone; the layer keeps their memory.
  EXPECT_TRUE(test::run(*layer, test::random_call(plain, 1, 1)));
}

FEWBIT_INSTANTIATE_LEVELS(CpuMoe);

TEST(CpuMoeRules, ListEveryUnmetNeedWithBothNumbers) {
  const LayerSpec spec{
      .hidden_size = 40, .intermediate_size = 24, .weight = DType::f4_e2m1, .activation = {}};
  MoeProblem problem = test::problem_of(spec, 1, 1);
  problem.activation_dtype = DType::i8;
  const auto selection = select_backend(problem, test::generic_cpu(), {.backend = "cpu_avx512"});
  ASSERT_FALSE(selection);
  const std::string& text = selection.error().what;
  for (const char* part : {"hidden_size % 16 = 0", "40", "intermediate_size % 16 = 0", "24",
                           "code for avx512", "has generic", "bf16, f16 or f32", "i8"}) {
    EXPECT_THAT(text, ::testing::HasSubstr(part));
  }
}

}  // namespace
}  // namespace fewbit
