// SPDX-License-Identifier: Apache-2.0
// Layers on tiles, against the formulas in double: with the unit of tiles in plain C++ on every CPU
// with AVX-512, and with the instructions of tiles and of dot products where there are some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backends/accumulation_bound.hpp"
#include "backends/cpu/cpu.hpp"
#include "backends/moe_case.hpp"
#include "backends/rounding_bound.hpp"
#include "core/aligned_buffer.hpp"
#include "core/convert.hpp"
#include "kernels/levels.hpp"
#include "kernels/soft_tiles.hpp"
#include "select/prepare_moe.hpp"

namespace fewbit {
namespace {

using test::Call;
using test::LayerSpec;
using test::scaled_scheme;

// With tiles for any number of tokens; usual: software tiles for as many as cpu_amx wants.
// dots: the level avx512 of a CPU whose dot products are fast.
enum class Unit { soft, amx, usual, dots };
const char* unit_name(Unit unit) {
  return unit == Unit::soft ? "soft" : unit == Unit::amx ? "amx" : "dots";
}

// Of the unit `usual` and of counted_dots.
int tile_products = 0;
Lane16TilesFn* counted = nullptr;
void count_product(const Lane16Tiles& run) {
  ++tile_products;
  counted(run);
}
Lane16TilesFn* counted_tiles(Lane16Codes codes) {
  counted = test::lane16_soft_tiles(codes);
  return count_product;
}

Lane16TilesFn* counted_dots(Lane16Codes codes) {
  counted = lane16_dots_avx512(codes);
  return counted == nullptr ? nullptr : count_product;
}

const cpu::Kernels& kernels(Unit unit) {
  const auto with = [](Lane16TilesOf* tiles, std::int64_t least_tile_tokens) {
    cpu::Kernels kernels = cpu::kernels_of(IsaLevel::amx);
    kernels.tiles = tiles;
    kernels.least_tile_tokens = least_tile_tokens;
    return kernels;
  };
  static const cpu::Kernels soft = with(test::lane16_soft_tiles, 1);
  static const cpu::Kernels amx = with(lane16_amx, 1);
  static const cpu::Kernels usual =
      with(counted_tiles, cpu::kernels_of(IsaLevel::amx).least_tile_tokens);
  if (unit == Unit::dots) return cpu::kernels_of(IsaLevel::avx512, {.avx512_fast_bf16 = true});
  if (unit == Unit::usual) return usual;
  return unit == Unit::soft ? soft : amx;
}

template <Unit unit>
Backend backend_on() {
  Backend backend = unit == Unit::dots ? cpu_avx512_backend : cpu_amx_backend;
  backend.open_moe = [](const MoeProblem& problem, const MoePlan& plan, PreparedMemory memory) {
    return cpu::open_moe(kernels(unit), problem, plan, std::move(memory));
  };
  return backend;
}
const Backend& backend_of(Unit unit) {
  static const Backend soft = backend_on<Unit::soft>();
  static const Backend amx = backend_on<Unit::amx>();
  static const Backend usual = backend_on<Unit::usual>();
  static const Backend dots = backend_on<Unit::dots>();
  if (unit == Unit::dots) return dots;
  if (unit == Unit::usual) return usual;
  return unit == Unit::soft ? soft : amx;
}

struct NamedScheme {
  const char* name;
  Scheme scheme;
};

std::vector<NamedScheme> schemes() {
  constexpr Granularity row{.rows = 1, .cols = 0};
  const auto grouped = [](DType weight, DType scale, std::int64_t group) {
    return scaled_scheme(weight, scale, {.rows = 1, .cols = group});
  };
  const auto changed = [](Scheme scheme, bool zeros, ActOrder order) {
    scheme.zero_points = zeros;
    scheme.act_order = order;
    return scheme;
  };
  using enum DType;
  return {
      {"nvfp4", nvfp4_scheme()},
      {"mxfp4", grouped(f4_e2m1, f8_e8m0, 32)},
      {"int4_g128", grouped(u4, bf16, 128)},
      {"int4_g32_signed", grouped(i4, f16, 32)},
      {"int4_channel", scaled_scheme(u4, f16, row)},
      {"int4_zeros", changed(grouped(u4, f16, 32), true, ActOrder::none)},
      {"int4_act_order", changed(grouped(u4, f16, 32), false, ActOrder::group)},
      {"int8_channel", scaled_scheme(i8, bf16, row)},
      {"int8_zeros_act_order", changed(grouped(u8, f16, 32), true, ActOrder::group)},
      {"fp8_tensor", scaled_scheme(f8_e4m3, f32, {})},
      {"fp8_block", scaled_scheme(f8_e4m3, f32, {.rows = 128, .cols = 128})},
      {"mxfp8", grouped(f8_e4m3, f8_e8m0, 32)},
      {"ternary", grouped(u2, f16, 64)},
  };
}

LayerSpec spec_of(const Scheme& scheme, std::int64_t hidden_size, std::int64_t intermediate_size,
                  std::int64_t experts) {
  return {.experts = experts,
          .hidden_size = hidden_size,
          .intermediate_size = intermediate_size,
          .activation = {},
          .scheme = scheme};
}

// A prepared layer, run with a workspace full of ones.
class Layer {
 public:
  Layer(Unit unit, const MoeProblem& problem, const MoeWeights& weights)
      : Layer(backend_of(unit), problem, weights) {}
  Layer(const Backend& backend, const MoeProblem& problem, const MoeWeights& weights)
      : problem_(problem) {
    auto prepared = prepare_moe(backend, problem, weights, serial_executor());
    EXPECT_TRUE(prepared) << prepared.error().message();
    if (prepared) layer_ = std::move(*prepared);
  }

  std::uint64_t workspace_bytes(std::int64_t tokens) const {
    return *layer_->workspace_bytes(tokens);
  }

  std::vector<float> run(const Call& call, Executor& executor = serial_executor(),
                         std::optional<AmaxTable> amax = std::nullopt) const {
    std::vector<std::byte> hidden(call.hidden.size() * 2);
    EXPECT_TRUE(convert_from_f32(call.hidden, DType::bf16, hidden));
    std::vector<std::byte> out(hidden.size());
    AlignedBuffer workspace = *AlignedBuffer::allocate(*layer_->workspace_bytes(call.tokens));
    std::memset(workspace.data(), 0xff, workspace.size());
    MoeArgs args;
    args.tokens = call.tokens;
    args.hidden = {.dtype = DType::bf16,
                   .shape = {call.tokens, problem_.hidden_size},
                   .bytes = hidden,
                   .device = {}};
    args.topk_ids = call.ids;
    args.topk_weights = call.weights;
    args.expert_map = call.expert_map;
    args.out = out;
    args.amax = amax;
    args.workspace = workspace.span();
    EXPECT_TRUE(layer_->run(args, executor));
    return test::to_f32(DType::bf16, out);
  }

 private:
  MoeProblem problem_;
  std::unique_ptr<PreparedMoe> layer_;
};

class CpuTiles : public ::testing::TestWithParam<Unit> {
 protected:
  void SetUp() override {
    FEWBIT_SKIP_UNUSABLE(GetParam() == Unit::amx ? IsaLevel::amx : IsaLevel::avx512);
    if (GetParam() == Unit::dots) FEWBIT_SKIP_WITHOUT_DOTS();
  }

  static void expect_within_bound(const MoeProblem& problem, const MoeWeights& weights,
                                  const Call& call, bool as_a_whole = false) {
    const std::vector<float> out = Layer(GetParam(), problem, weights).run(call);
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
  for (const NamedScheme& named : schemes()) {
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
  for (const NamedScheme& named : schemes()) {
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
      for (const NamedScheme& named : {schemes()[0], schemes()[5]}) {
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
  for (const NamedScheme& named : schemes()) {
    SCOPED_TRACE(named.name);
    LayerSpec spec = spec_of(named.scheme, 512, 96, 8);
    spec.biases = true;
    const MoeProblem problem = test::problem_of(spec, 2, 70);
    const Layer layer(GetParam(), problem, test::random_weights(spec));
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
  Layer(GetParam(), problem, weights)
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
  const std::vector<float> out = Layer(GetParam(), problem, weights).run(call);
  for (std::size_t h = 0; h < 32; ++h) {
    EXPECT_FALSE(std::isnan(out[h]));
    EXPECT_TRUE(std::isnan(out[32 + h]));
  }
}

// The others of its experts have the bits that they have beside numbers.
TEST_P(CpuTiles, ATokenThatIsNoNumberSpoilsItselfOnly) {
  for (const NamedScheme& named : schemes()) {
    SCOPED_TRACE(named.name);
    const LayerSpec spec = spec_of(named.scheme, 512, 160, 2);
    const MoeProblem problem = test::problem_of(spec, 2, 19);
    const Layer layer(GetParam(), problem, test::random_weights(spec));
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
  for (const NamedScheme& named : schemes()) {
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
    const auto layer = cpu::prepare_linear(kernels(GetParam()), problem, weight, serial_executor());
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
      for (std::size_t i = 0; i<y.size(); i += tokens> 100 ? 7 : 1) {
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

// 8 experts and top-k 2: 13 tokens give an expert 4 of them where routing is even, 12 give 3.
TEST(CpuTilesChoice, FewTokensOfAnExpertRunAsOnAvx512) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
  LayerSpec spec =
      spec_of(scaled_scheme(DType::i4, DType::bf16, {.rows = 1, .cols = 32}), 64, 48, 8);
  const MoeProblem problem = test::problem_of(spec, 2, 13);
  const MoeWeights weights = test::random_weights(spec);
  const Layer usual(Unit::usual, problem, weights);
  const Layer tiles(Unit::soft, problem, weights);
  const Layer vectors(cpu_avx512_backend, problem, weights);
  const Call few = test::random_call(problem, 12, 21);
  const Call many = test::random_call(problem, 13, 22);
  EXPECT_EQ(usual.run(few), vectors.run(few));
  EXPECT_EQ(tile_products, 0);
  EXPECT_EQ(usual.run(many), tiles.run(many));
  EXPECT_GT(tile_products, 0);
}

// Of codes that dot products take and others, with activations that they take and others.
TEST(CpuTilesChoice, ExplainSaysWhetherDotProductsRun) {
  FEWBIT_SKIP_WITHOUT_DOTS();
  static cpu::Kernels kernels = cpu::kernels_of(IsaLevel::avx512, {.avx512_fast_bf16 = true});
  kernels.tiles = counted_dots;
  Backend backend = cpu_avx512_backend;
  backend.open_moe = [](const MoeProblem& problem, const MoePlan& plan, PreparedMemory memory) {
    return cpu::open_moe(kernels, problem, plan, std::move(memory));
  };
  const DeviceInfo without = *describe_device("cpu:avx512");
  DeviceInfo with = without;
  with.cpu.avx512_bf16 = with.cpu.avx512_fast_bf16 = true;
  int by_dots = 0;
  for (const NamedScheme& named : schemes()) {
    SCOPED_TRACE(named.name);
    const LayerSpec spec = spec_of(named.scheme, 128, 128, 2);
    MoeProblem problem = test::problem_of(spec, 2, 16);
    const MoeWeights weights = test::random_weights(spec);
    const Layer layer(backend, problem, weights);
    for (const std::int64_t tokens : {1, 16}) {
      tile_products = 0;
      layer.run(test::random_call(problem, tokens, 5));
      const std::string text = backend.variant(problem, with, tokens);
      const bool said = text.starts_with("dot products of bf16 pairs, ");
      EXPECT_EQ(said, tile_products > 0) << text;
      EXPECT_NE(said, text.starts_with("panels of ")) << text;
      EXPECT_THAT(backend.variant(problem, without, tokens), ::testing::StartsWith("panels of "));
      by_dots += said ? 1 : 0;
    }
    problem.activation_dtype = DType::f32;
    EXPECT_THAT(backend.variant(problem, with, 16), ::testing::StartsWith("panels of "));
  }
  EXPECT_EQ(by_dots, 2 * 9);
}

TEST(CpuTilesChoice, DotProductsAreOfTheirLevelAndOfCpusThatHaveThemFast) {
  const CpuFeatures fast{.avx512_bf16 = true, .avx512_fast_bf16 = true};
  const CpuFeatures slow{.avx512_bf16 = true};
  EXPECT_EQ(cpu::kernels_of(IsaLevel::avx512, fast).tiles, &lane16_dots_avx512);
  EXPECT_EQ(cpu::kernels_of(IsaLevel::avx512, slow).tiles, nullptr);
  EXPECT_EQ(cpu::kernels_of(IsaLevel::amx, fast).tiles, &lane16_amx);
  for (const IsaLevel below : {IsaLevel::generic, IsaLevel::avx2})
    EXPECT_EQ(cpu::kernels_of(below, fast).tiles, nullptr) << isa_name(below);
}

// Gate and up that dot products take beside down that they don't, and the other way round.
TEST(CpuTilesChoice, OneMatrixWithoutDotProductsLeavesAllToPanels) {
  DeviceInfo device = *describe_device("cpu:avx512");
  device.cpu.avx512_bf16 = device.cpu.avx512_fast_bf16 = true;
  MoeProblem problem = test::problem_of(spec_of(nvfp4_scheme(), 128, 128, 2), 2, 16);
  const Scheme other = scaled_scheme(DType::i8, DType::f32, {.rows = 1, .cols = 0});
  EXPECT_THAT(cpu_avx512_backend.variant(problem, device, 1),
              ::testing::StartsWith("dot products"));
  for (Scheme MoeProblem::*const matrix : {&MoeProblem::gate_up, &MoeProblem::down}) {
    MoeProblem mixed = problem;
    mixed.*matrix = other;
    EXPECT_THAT(cpu_avx512_backend.variant(mixed, device, 1), ::testing::StartsWith("panels of "));
  }
}

TEST(CpuTilesChoice, WorkspaceOfManyTokensHoldsFewerToo) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
  const LayerSpec spec =
      spec_of(scaled_scheme(DType::i8, DType::f32, {.rows = 1, .cols = 0}), 64, 48, 8);
  const MoeProblem problem = test::problem_of(spec, 2, 600);
  const Layer layer(Unit::usual, problem, test::random_weights(spec));
  for (std::int64_t tokens = 1; tokens < 600; ++tokens)
    EXPECT_LE(layer.workspace_bytes(tokens), layer.workspace_bytes(tokens + 1)) << tokens;
}

// Which layers go to tiles, and what others are told.
TEST(CpuTilesRules, TakePackedWeightsWithBf16) {
  const DeviceInfo device = *describe_device("cpu:amx");
  LayerSpec spec{.hidden_size = 32, .weight = DType::f4_e2m1, .activation = {}};
  MoeProblem problem = test::problem_of(spec, 1, 1);
  const auto chosen = select_backend(problem, device, {});
  ASSERT_TRUE(chosen) << chosen.error().message();
  EXPECT_EQ(chosen->chosen, "cpu_amx");
  problem.activation_dtype = DType::f32;
  EXPECT_EQ(select_backend(problem, device, {})->chosen, "cpu_avx512");
  spec.weight = DType::bf16;
  problem.gate_up = problem.down = test::problem_of(spec, 1, 1).gate_up;
  EXPECT_EQ(select_backend(problem, device, {})->chosen, "cpu_avx512");
  const auto forced = select_backend(problem, device, {.backend = "cpu_amx"});
  ASSERT_FALSE(forced);
  for (const char* part : {"gate and up in e2m1, u2, int4, int8 or e4m3 with scales",
                           "down in e2m1", "activations in bf16", "f32"}) {
    EXPECT_THAT(forced.error().what, ::testing::HasSubstr(part));
  }
  const auto below =
      select_backend(test::problem_of({.weight = DType::f4_e2m1, .activation = {}}, 1, 1),
                     *describe_device("cpu:avx512"), {.backend = "cpu_amx"});
  ASSERT_FALSE(below);
  EXPECT_THAT(below.error().what, ::testing::HasSubstr("amx"));
}

}  // namespace
}  // namespace fewbit
