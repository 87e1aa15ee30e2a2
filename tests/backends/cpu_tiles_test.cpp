// SPDX-License-Identifier: Apache-2.0
// Layers on tiles, against the formulas in double: with the unit of tiles in plain C++ on every CPU
// with AVX-512, and with the instructions of tiles and of dot products where there are some.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backends/accumulation_bound.hpp"
#include "backends/cpu/cpu.hpp"
#include "backends/cpu_tile_layer.hpp"
#include "backends/rounding_bound.hpp"
#include "core/aligned_buffer.hpp"
#include "core/convert.hpp"
#include "kernels/levels.hpp"

namespace fewbit {
namespace {

using test::Call;
using test::LayerSpec;
using test::NamedScheme;
using test::spec_of;
using test::tile_schemes;
using test::TileLayer;
using test::Unit;

const char* unit_name(Unit unit) {
  return unit == Unit::soft ? "soft" : unit == Unit::amx ? "amx" : "dots";
}

class CpuTiles : public ::testing::TestWithParam<Unit> {
 protected:
  void SetUp() override {
    FEWBIT_SKIP_UNUSABLE(GetParam() == Unit::amx ? IsaLevel::amx : IsaLevel::avx512);
    if (GetParam() == Unit::dots) FEWBIT_SKIP_WITHOUT_DOTS();
  }

  static void expect_within_bound(const MoeProblem& problem, const MoeWeights& weights,
                                  const Call& call, bool as_a_whole = false) {
    const std::vector<float> out = TileLayer(GetParam(), problem, weights).run(call);
    const MoeReferenceResult want = test::expected(problem, weights, call);
    const auto rounding = test::rounding_bound(problem, weights, test::input_of(call), want);
    ASSERT_TRUE(rounding) << rounding.error().message();
    const auto accumulation = test::accumulation_bound(problem, weights, call, want);
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_LE(std::abs(out[i] - want.out[i]), (*rounding)[i] + accumulation[i])
          << "element " << i << ": " << out[i] << ", want " << want.out[i] << ", tokens "
          << call.tokens;
      error += (out[i] - want.out[i]) * (out[i] - want.out[i]);
      norm += want.out[i] * want.out[i];
    }
    if (!as_a_whole) return;
    // Two roundings to bf16.
    EXPECT_LE(std::sqrt(error), 0x1p-8 * std::sqrt(norm)) << call.tokens << " tokens";
  }
};

TEST_P(CpuTiles, EveryFormStaysWithinTheBound) {
  for (const NamedScheme& named : tile_schemes()) {
    SCOPED_TRACE(named.name);
    const LayerSpec spec = spec_of(named.scheme, 192, 128, 2);
    const MoeWeights weights = test::random_weights(spec);
    for (const std::int64_t tokens : {1, 7, 40}) {
      const MoeProblem problem = test::problem_of(spec, 2, 40);
      expect_within_bound(problem, weights, test::random_call(problem, tokens, 3));
    }
  }
}

// Sizes whose last line of a tile is half full, and that are no multiples of the groups.
TEST_P(CpuTiles, OddSizesStayWithinTheBound) {
  for (const NamedScheme& named : tile_schemes()) {
    if (named.scheme.act_order == ActOrder::group) continue;
    SCOPED_TRACE(named.name);
    for (const auto& [hidden, intermediate] :
         {std::pair{464, 80}, std::pair{2880, 48}, std::pair{48, 2688}, std::pair{16, 160}}) {
      const LayerSpec spec = spec_of(named.scheme, hidden, intermediate, 2);
      const MoeProblem problem = test::problem_of(spec, 2, 3);
      expect_within_bound(problem, test::random_weights(spec), test::random_call(problem, 3, 8));
    }
  }
}

TEST_P(CpuTiles, AnyNumberOfTokens) {
  const LayerSpec spec{.experts = 8, .weight = DType::f4_e2m1, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  for (const std::int64_t tokens :
       {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
    const MoeProblem problem = test::problem_of(spec, 2, 129);
    expect_within_bound(problem, weights, test::random_call(problem, tokens, 3), true);
  }
}

// One expert with more tokens than a panel, more than a pass, and ids that are dropped.
TEST_P(CpuTiles, CrowdedExpertsAndLongCalls) {
  const LayerSpec spec{.experts = 3,
                       .hidden_size = 16,
                       .intermediate_size = 48,
                       .weight = DType::f4_e2m1,
                       .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  const MoeProblem problem = test::problem_of(spec, 2, 1300);
  Call crowded = test::random_call(problem, 150, 10);
  crowded.ids.assign(300, 1);
  expect_within_bound(problem, weights, crowded);
  Call dropped = test::random_call(problem, 6, 9);
  dropped.ids = {2, 2, -1, 2, 1, -1, 100, INT32_MIN, 2, 0, 2, 2};
  expect_within_bound(problem, weights, dropped);
  dropped.ids.assign(12, -1);
  expect_within_bound(problem, weights, dropped);
  expect_within_bound(problem, weights, test::random_call(problem, 1300, 11));
}

TEST_P(CpuTiles, EveryActivationBiasAndRouterWeightSide) {
  for (const Activation kind : {Activation::silu, Activation::swigluoai, Activation::relu2,
                                Activation::gelu, Activation::gelu_tanh}) {
    for (const auto side : {RouterWeightSide::output, RouterWeightSide::input}) {
      for (const NamedScheme& named : {tile_schemes()[0], tile_schemes()[5]}) {
        SCOPED_TRACE(named.name);
        LayerSpec spec = spec_of(named.scheme, 64, 96, 4);
        spec.biases = true;
        spec.activation = {.kind = kind};
        if (kind == Activation::swigluoai) {
          spec.activation = {.kind = kind, .alpha = 1.702F, .beta = 1, .limit = 7.0F};
        }
        MoeProblem problem = test::problem_of(spec, 2, 40);
        problem.router_weight_side = side;
        for (const std::int64_t tokens : {1, 40}) {
          expect_within_bound(problem, test::random_weights(spec),
                              test::random_call(problem, tokens, 4));
        }
      }
    }
  }
}

TEST_P(CpuTiles, ExpertMapNamesLocalExperts) {
  const LayerSpec spec{.weight = DType::f4_e2m1, .activation = {}};
  MoeProblem problem = test::problem_of(spec, 2, 4);
  problem.expert_map = true;
  Call call = test::random_call(problem, 4, 10);
  call.expert_map = {-1, 3, 0, -1, 1, 2, 4};
  call.ids = {0, 1, 2, 3, 4, 5, 6, 7};
  expect_within_bound(problem, test::random_weights(spec), call);
}

TEST_P(CpuTiles, SameBitsForAnyNumberOfThreadsAndTokens) {
  for (const NamedScheme& named : tile_schemes()) {
    SCOPED_TRACE(named.name);
    LayerSpec spec = spec_of(named.scheme, 512, 96, 8);
    spec.biases = true;
    const MoeProblem problem = test::problem_of(spec, 2, 70);
    const TileLayer layer(GetParam(), problem, test::random_weights(spec));
    const Call call = test::random_call(problem, 70, 5);
    const std::vector<float> all = layer.run(call);
    for (int threads = 2; threads <= 5; ++threads) {
      const auto pool = make_thread_pool(threads);
      ASSERT_TRUE(pool);
      EXPECT_EQ(layer.run(call, **pool), all) << threads << " threads";
    }
    for (std::ptrdiff_t token = 0; token < 70; token += 23) {
      const Call alone{
          .tokens = 1,
          .hidden = {call.hidden.begin() + token * 512, call.hidden.begin() + (token + 1) * 512},
          .ids = {call.ids.begin() + token * 2, call.ids.begin() + token * 2 + 2},
          .weights = {call.weights.begin() + token * 2, call.weights.begin() + token * 2 + 2},
          .expert_map = {}};
      EXPECT_EQ(layer.run(alone),
                std::vector<float>(all.begin() + token * 512, all.begin() + (token + 1) * 512));
    }
  }
}

TEST_P(CpuTiles, AmaxIsRaisedInItsLayerOnly) {
  const LayerSpec spec{.experts = 2, .weight = DType::f4_e2m1, .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  const MoeProblem problem = test::problem_of(spec, 1, 3);
  Call call = test::random_call(problem, 3, 12);
  call.ids = {1, 1, -1};
  call.hidden[2 * 32] = 1e6F;  // of the dropped token
  const auto want = test::expected(problem, weights, call).amax;
  // Two layers of a table with three experts.
  std::vector<float> table(12, 900.0F);
  table[6] = table[7] = table[8] = table[9] = 0.0F;
  TileLayer(GetParam(), problem, weights)
      .run(call, serial_executor(),
           AmaxTable{.values = table, .layers = 2, .experts = 3, .layer = 1});
  EXPECT_EQ(table[6], 0.0F);
  EXPECT_EQ(table[7], 0.0F);
  EXPECT_EQ(table[8], want[2]);
  EXPECT_NEAR(table[9], want[3], 0x1p-8F * want[3]);
  EXPECT_EQ(table[10], 900.0F);
}

TEST_P(CpuTiles, NanScalesSpoilOnlyTheirOwnExpert) {
  const LayerSpec spec{.experts = 2, .weight = DType::f4_e2m1, .activation = {}};
  MoeWeights weights = test::random_weights(spec);
  const auto bytes = weights.experts[1].down.scales.view.bytes.size();
  weights.experts[1].down.scales =
      test::owned_tensor(DType::f8_e4m3, {}, std::vector<std::uint8_t>(bytes, 0x7f));
  const MoeProblem problem = test::problem_of(spec, 1, 2);
  Call call = test::random_call(problem, 2, 2);
  call.ids = {0, 1};
  const std::vector<float> out = TileLayer(GetParam(), problem, weights).run(call);
  for (std::size_t h = 0; h < 32; ++h) {
    EXPECT_FALSE(std::isnan(out[h]));
    EXPECT_TRUE(std::isnan(out[32 + h]));
  }
}

// The others of its experts have the bits that they have beside numbers.
TEST_P(CpuTiles, ATokenThatIsNoNumberSpoilsItselfOnly) {
  for (const NamedScheme& named : tile_schemes()) {
    SCOPED_TRACE(named.name);
    const LayerSpec spec = spec_of(named.scheme, 512, 160, 2);
    const MoeProblem problem = test::problem_of(spec, 2, 19);
    const TileLayer layer(GetParam(), problem, test::random_weights(spec));
    Call call = test::random_call(problem, 19, 7);
    for (std::size_t route = 0; route < 38; ++route) call.ids[route] = route % 3 == 0 ? 1 : 0;
    call.ids[8] = call.ids[9] = -1;
    const std::vector<float> clean = layer.run(call);
    constexpr float infinity = std::numeric_limits<float>::infinity();
    call.hidden[2 * 512 + 3] = std::numeric_limits<float>::quiet_NaN();
    call.hidden[4 * 512 + 5] = std::numeric_limits<float>::quiet_NaN();  // of no expert
    for (std::size_t i = 0; i < 512; i += 7) call.hidden[17 * 512 + i] = infinity;
    const std::vector<float> out = layer.run(call);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t token = i / 512;
      if (token == 2)
        ASSERT_TRUE(std::isnan(out[i])) << i;
      else if (token == 17)
        ASSERT_FALSE(std::isfinite(out[i])) << i;
      else
        ASSERT_EQ(out[i], clean[i]) << i;
    }
  }
}

TEST_P(CpuTiles, LinearLayersStayWithinTheBound) {
  for (const NamedScheme& named : tile_schemes()) {
    SCOPED_TRACE(named.name);
    std::mt19937 random(6);
    const std::int64_t n = 150;
    const std::int64_t k = 384;
    const QuantizedTensor weight = test::random_scaled(named.scheme, n, k, random);
    std::vector<float> dense(static_cast<std::size_t>(n * k));
    ASSERT_TRUE(dequantize_rows(weight, 0, dense));
    const LinearProblem problem{.n = n,
                                .k = k,
                                .weight = named.scheme,
                                .activation_dtype = DType::bf16,
                                .output_dtype = DType::f32,
                                .max_tokens = 600,
                                .where = "test linear"};
    const auto layer =
        cpu::prepare_linear(test::kernels(GetParam()), problem, weight, serial_executor());
    ASSERT_TRUE(layer) << layer.error().message();
    for (const std::int64_t tokens : {1, 30, 300}) {
      std::vector<float> x(static_cast<std::size_t>(tokens * k));
      for (float& value : x) value = static_cast<float>(random() % 256) / 128 - 1;
      std::vector<std::byte> input(x.size() * 2);
      ASSERT_TRUE(convert_from_f32(x, DType::bf16, input));
      std::vector<float> y(static_cast<std::size_t>(tokens * n));
      AlignedBuffer workspace = *AlignedBuffer::allocate(*(*layer)->workspace_bytes(tokens));
      std::memset(workspace.data(), 0xff, workspace.size());
      const LinearArgs args{
          .tokens = tokens,
          .x = {.dtype = DType::bf16, .shape = {tokens, k}, .bytes = input, .device = {}},
          .y = std::as_writable_bytes(std::span(y)),
          .workspace = workspace.span()};
      const auto pool = make_thread_pool(2);
      ASSERT_TRUE((*layer)->run(args, **pool));
      const std::size_t every = tokens > 100 ? 7 : 1;
      for (std::size_t i = 0; i < y.size(); i += every) {
        double sum = 0;
        double magnitude = 0;
        for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
          const double product = double{x[i / 150 * 384 + j]} * double{dense[i % 150 * 384 + j]};
          sum += product;
          magnitude += std::abs(product);
        }
        ASSERT_LE(std::abs(y[i] - sum), 384 * 0x1p-24 * magnitude) << "element " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Units, CpuTiles, ::testing::Values(Unit::soft, Unit::amx, Unit::dots),
                         [](const auto& unit) { return std::string(unit_name(unit.param)); });

}  // namespace
}  // namespace fewbit
