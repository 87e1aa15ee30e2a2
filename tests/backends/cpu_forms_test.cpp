// SPDX-License-Identifier: Apache-2.0
// The CPU backends on every packed form of weights, against the formulas in double; biases and
// act-order; and back to canonical weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backends/accumulation_bound.hpp"
#include "backends/moe_case.hpp"
#include "backends/rounding_bound.hpp"
#include "canonical/gguf_exact.hpp"
#include "kernels/levels.hpp"
#include "select/backend.hpp"
#include "select/expert_scratch.hpp"

namespace fewbit {
namespace {

using test::Call;
using test::LayerSpec;
using test::scaled_scheme;
using test::spec_of;

struct NamedScheme {
  const char* name;
  Scheme scheme;
  const char* layout;
};

Scheme with_zeros(Scheme scheme) {
  scheme.zero_points = true;
  return scheme;
}
Scheme ordered(Scheme scheme) {
  scheme.act_order = ActOrder::group;
  return scheme;
}

std::vector<NamedScheme> schemes() {
  constexpr Granularity row{.rows = 1, .cols = 0};
  const auto grouped = [](DType weight, DType scale, std::int64_t group) {
    return scaled_scheme(weight, scale, {.rows = 1, .cols = group});
  };
  using enum DType;
  return {
      {"mxfp4", grouped(f4_e2m1, f8_e8m0, 32), "cpu_f4_lane16"},
      {"int4_g128", grouped(u4, bf16, 128), "cpu_int4_lane16"},
      {"int4_g64_signed", grouped(i4, f16, 64), "cpu_int4_lane16"},
      {"int4_channel", scaled_scheme(u4, f16, row), "cpu_int4_lane16"},
      {"int4_g32_zeros", with_zeros(grouped(u4, f16, 32)), "cpu_int4_lane16"},
      {"int4_act_order", ordered(grouped(u4, f16, 32)), "cpu_int4_lane16"},
      {"int4_zeros_act_order", with_zeros(ordered(grouped(u4, bf16, 32))), "cpu_int4_lane16"},
      {"int8_channel", scaled_scheme(i8, bf16, row), "cpu_int8_lane16"},
      {"int8_g32_unsigned", grouped(u8, f16, 32), "cpu_int8_lane16"},
      {"int8_g128_zeros", with_zeros(grouped(u8, f16, 128)), "cpu_int8_lane16"},
      {"int8_act_order", ordered(grouped(u8, f32, 32)), "cpu_int8_lane16"},
      {"fp8_tensor", scaled_scheme(f8_e4m3, f32, {}), "cpu_f8_lane16"},
      {"fp8_channel", scaled_scheme(f8_e4m3, bf16, row), "cpu_f8_lane16"},
      {"fp8_block", scaled_scheme(f8_e4m3, f32, {.rows = 128, .cols = 128}), "cpu_f8_lane16"},
      {"fp8_block_e8m0", scaled_scheme(f8_e4m3, f8_e8m0, {.rows = 128, .cols = 128}),
       "cpu_f8_lane16"},
      {"nf3", grouped(nf3, f8_e4m3, 32), "cpu_nf3_lane16"},
      {"ternary_64", grouped(u2, f16, 64), "cpu_ternary_lane16"},
      {"ternary_128", grouped(u2, f16, 128), "cpu_ternary_lane16"},
      {"ternary_tensor", scaled_scheme(u2, f32, {}), "cpu_ternary_lane16"},
      {"mxfp8", grouped(f8_e4m3, f8_e8m0, 32), "cpu_f8_lane16"},
  };
}

class CpuForms : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override { FEWBIT_SKIP_UNUSABLE(GetParam()); }

  static Result<MoeLayer> prepare(const MoeProblem& problem, const MoeWeights& weights) {
    return test::prepare(std::string("cpu_") + isa_name(GetParam()), problem, weights,
                         *detect_cpu());
  }

  static void expect_within_bound(const MoeProblem& problem, const MoeWeights& weights,
                                  const Call& call) {
    const auto layer = prepare(problem, weights);
    ASSERT_TRUE(layer) << layer.error().message();
    const auto bytes = test::run(*layer, call);
    ASSERT_TRUE(bytes) << bytes.error().message();
    const std::vector<float> out = test::to_f32(problem.activation_dtype, *bytes);
    const MoeReferenceResult want = test::expected(problem, weights, call);
    const auto rounding = test::rounding_bound(problem, weights, test::input_of(call), want);
    ASSERT_TRUE(rounding) << rounding.error().message();
    const auto accumulation = test::accumulation_bound(problem, weights, call, want);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_LE(std::abs(out[i] - want.out[i]), (*rounding)[i] + accumulation[i])
          << "element " << i << ": " << out[i] << ", want " << want.out[i] << ", tokens "
          << call.tokens;
    }
  }
};

TEST_P(CpuForms, EveryFormStaysWithinTheBound) {
  for (const NamedScheme& named : schemes()) {
    SCOPED_TRACE(named.name);
    const LayerSpec spec = spec_of(named.scheme, 192, 128, 2);
    const MoeWeights weights = test::random_weights(spec);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      for (const std::int64_t tokens : {1, 7, 33}) {
        MoeProblem problem = test::problem_of(spec, 2, 33);
        problem.activation_dtype = dtype;
        expect_within_bound(problem, weights, test::random_call(problem, tokens, 3));
      }
    }
  }
}

// Sizes that are no multiples of the groups, but for act-order, whose groups are full.
TEST_P(CpuForms, OddSizesStayWithinTheBound) {
  for (const NamedScheme& named : schemes()) {
    if (named.scheme.act_order == ActOrder::group) continue;
    SCOPED_TRACE(named.name);
    for (const auto& [hidden, intermediate] :
         {std::pair{464, 80}, std::pair{2880, 48}, std::pair{48, 2688}, std::pair{16, 160}}) {
      const LayerSpec spec = spec_of(named.scheme, hidden, intermediate, 2);
      MoeProblem problem = test::problem_of(spec, 2, 3);
      problem.activation_dtype = DType::f32;
      expect_within_bound(problem, test::random_weights(spec), test::random_call(problem, 3, 8));
    }
  }
}

TEST_P(CpuForms, BiasesWithEveryActivationAndRouterWeightSide) {
  for (const Activation kind : {Activation::silu, Activation::swigluoai, Activation::relu2}) {
    for (const auto side : {RouterWeightSide::output, RouterWeightSide::input}) {
      for (const NamedScheme& named : {schemes()[0], schemes()[5]}) {
        SCOPED_TRACE(named.name);
        LayerSpec spec = spec_of(named.scheme, 64, 96);
        spec.biases = true;
        spec.activation = {.kind = kind, .alpha = 1.702F, .beta = 1, .limit = 7.0F};
        if (kind != Activation::swigluoai) spec.activation = {.kind = kind};
        const MoeWeights weights = test::random_weights(spec);
        MoeProblem problem = test::problem_of(spec, 2, 40);
        problem.activation_dtype = DType::f32;
        problem.router_weight_side = side;
        for (const std::int64_t tokens : {1, 40})
          expect_within_bound(problem, weights, test::random_call(problem, tokens, 4));
      }
    }
  }
}

TEST_P(CpuForms, AnExpertWithoutTheBiasesOfOthers) {
  LayerSpec spec = spec_of(schemes()[0].scheme, 32, 32);
  spec.biases = true;
  MoeWeights weights = test::random_weights(spec);
  weights.experts[1].gate_bias.clear();
  weights.experts[2].down_bias.clear();
  MoeProblem problem = test::problem_of(spec, 2, 9);
  problem.activation_dtype = DType::f32;
  expect_within_bound(problem, weights, test::random_call(problem, 9, 4));
}

TEST_P(CpuForms, SameBitsForAnyNumberOfThreadsAndTokens) {
  for (const NamedScheme& named : schemes()) {
    SCOPED_TRACE(named.name);
    LayerSpec spec = spec_of(named.scheme, 512, 96, 8);
    spec.biases = true;
    MoeProblem problem = test::problem_of(spec, 2, 70);
    problem.activation_dtype = DType::f32;
    const auto layer = prepare(problem, test::random_weights(spec));
    ASSERT_TRUE(layer) << layer.error().message();
    const Call call = test::random_call(problem, 70, 5);
    const auto serial = test::run(*layer, call);
    for (int threads = 2; threads <= 4; ++threads) {
      const auto pool = make_thread_pool(threads);
      ASSERT_TRUE(pool);
      EXPECT_EQ(*test::run(*layer, call, **pool), *serial) << threads << " threads";
    }
    const auto all = test::to_f32(DType::f32, *serial);
    for (std::ptrdiff_t token = 0; token < 70; token += 23) {
      const Call alone{
          .tokens = 1,
          .hidden = {call.hidden.begin() + token * 512, call.hidden.begin() + (token + 1) * 512},
          .ids = {call.ids.begin() + token * 2, call.ids.begin() + token * 2 + 2},
          .weights = {call.weights.begin() + token * 2, call.weights.begin() + token * 2 + 2},
          .expert_map = {}};
      EXPECT_EQ(test::to_f32(DType::f32, *test::run(*layer, alone)),
                std::vector<float>(all.begin() + token * 512, all.begin() + (token + 1) * 512));
    }
  }
}

TEST_P(CpuForms, LinearLayersStayWithinTheBound) {
  for (const NamedScheme& named : schemes()) {
    SCOPED_TRACE(named.name);
    std::mt19937 random(6);
    const std::int64_t n = 150;
    const std::int64_t k = 384;
    const QuantizedTensor weight = test::random_scaled(named.scheme, n, k, random);
    std::vector<float> dense(static_cast<std::size_t>(n * k));
    ASSERT_TRUE(dequantize_rows(weight, 0, dense));
    const auto layer = LinearLayer::prepare({.n = n,
                                             .k = k,
                                             .weight = named.scheme,
                                             .activation_dtype = DType::f32,
                                             .output_dtype = DType::f32,
                                             .max_tokens = 30,
                                             .where = "test linear"},
                                            weight, *detect_cpu(),
                                            {.backend = std::string("cpu_") + isa_name(GetParam())},
                                            serial_executor());
    ASSERT_TRUE(layer) << layer.error().message();
    EXPECT_EQ(layer->info().layout, named.layout);
    for (const std::int64_t tokens : {1, 30}) {
      std::vector<float> x(static_cast<std::size_t>(tokens * k));
      for (float& value : x) value = static_cast<float>(random() % 1000) / 500 - 1;
      std::vector<float> y(static_cast<std::size_t>(tokens * n));
      AlignedBuffer workspace = *AlignedBuffer::allocate(*layer->workspace_bytes(tokens));
      ASSERT_TRUE(layer->run(tokens,
                             {.dtype = DType::f32,
                              .shape = {tokens, k},
                              .bytes = std::as_bytes(std::span(x)),
                              .device = {}},
                             std::as_writable_bytes(std::span(y)), workspace.span(),
                             serial_executor()));
      for (std::size_t i = 0; i < y.size(); ++i) {
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

// Blocks as GGUF stores them give the bits of their exact form with codes and scales apart.
TEST_P(CpuForms, GgufBlocksAreReadInTheirExactForm) {
  struct Block {
    int id;
    std::int64_t elements, bytes;
  };
  for (const Block& type :
       {Block{2, 32, 18}, Block{8, 32, 34}, Block{39, 32, 17}, Block{40, 64, 36}, Block{42, 64, 18},
        Block{142, 128, 34}, Block{35, 256, 66}}) {
    SCOPED_TRACE(type.id);
    const std::int64_t n = 40;
    const std::int64_t k = 768;
    std::mt19937 random(7);
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n * k / type.elements * type.bytes));
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random() & 0x3FU);
    QuantizedTensor blocks;
    blocks.n = n;
    blocks.k = k;
    blocks.scheme.producer = Producer::gguf;
    blocks.scheme.packing = Packing::ggml;
    blocks.scheme.weight = DType::u8;
    blocks.scheme.ggml_type = type.id;
    blocks.codes =
        test::owned_tensor(DType::u8, {n, k / type.elements * type.bytes}, std::move(bytes));
    const auto exact = gguf_exact(blocks);
    ASSERT_TRUE(exact) << exact.error().message();
    std::vector<float> x(static_cast<std::size_t>(3 * k));
    for (float& value : x) value = static_cast<float>(random() % 1000) / 500 - 1;
    std::vector<float> results[2];
    for (int i = 0; i < 2; ++i) {
      const QuantizedTensor& weight = i == 0 ? blocks : *exact;
      const auto layer = LinearLayer::prepare(
          {.n = n,
           .k = k,
           .weight = weight.scheme,
           .activation_dtype = DType::f32,
           .output_dtype = DType::f32,
           .max_tokens = 3,
           .where = "test linear"},
          weight, *detect_cpu(), {.backend = std::string("cpu_") + isa_name(GetParam())},
          serial_executor());
      ASSERT_TRUE(layer) << layer.error().message();
      AlignedBuffer workspace = *AlignedBuffer::allocate(*layer->workspace_bytes(3));
      results[i].resize(static_cast<std::size_t>(3 * n));
      ASSERT_TRUE(layer->run(3,
                             {.dtype = DType::f32,
                              .shape = {3, k},
                              .bytes = std::as_bytes(std::span(x)),
                              .device = {}},
                             std::as_writable_bytes(std::span(results[i])), workspace.span(),
                             serial_executor()));
    }
    EXPECT_EQ(results[0], results[1]);
    EXPECT_GT(std::abs(results[0][5]), 0.0F);
  }
}

FEWBIT_INSTANTIATE_LEVELS(CpuForms);

std::vector<float> dense(const QuantizedTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.n * tensor.k));
  EXPECT_TRUE(dequantize_rows(tensor, 0, values));
  return values;
}

// Packed over memory full of ones, so that no byte is left as it was.
TEST(CpuFormsPacking, UnpackGivesTheWeightsBack) {
  for (const NamedScheme& named : schemes()) {
    SCOPED_TRACE(named.name);
    LayerSpec spec = spec_of(named.scheme, 160, 288, 1);
    spec.biases = true;
    const MoeProblem problem = test::problem_of(spec, 1, 1);
    const ExpertWeights expert = test::random_weights(spec).experts.front();
    const Backend& backend = *find_backend("cpu_generic");
    const auto plan = backend.plan_moe(problem, expert);
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ(plan->buffers.front().layout, named.layout);
    ExpertScratch scratch;
    ASSERT_TRUE(scratch.lay_out(*plan));
    std::memset(scratch.memory.data(), 0xff, scratch.memory.size());
    ASSERT_TRUE(backend.pack_expert(problem, *plan, expert, scratch.shares));
    const std::vector<std::span<const std::byte>> shares(scratch.shares.begin(),
                                                         scratch.shares.end());
    const auto back = backend.unpack_expert(problem, *plan, shares);
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_EQ(back->gate_bias, expert.gate_bias);
    EXPECT_EQ(back->down_bias, expert.down_bias);
    for (const auto& [got, want] :
         {std::pair{&*back->gate, &*expert.gate}, std::pair{&back->up, &expert.up},
          std::pair{&back->down, &expert.down}}) {
      EXPECT_EQ(dense(*got), dense(*want));
      for (const auto& part : {&QuantizedTensor::codes, &QuantizedTensor::scales,
                               &QuantizedTensor::zero_points, &QuantizedTensor::g_idx}) {
        EXPECT_TRUE(std::ranges::equal((got->*part).view.bytes, (want->*part).view.bytes));
      }
    }
  }
}

std::string packing_error(const MoeProblem& problem, const ExpertWeights& expert) {
  const Backend& backend = *find_backend("cpu_generic");
  const auto plan = backend.plan_moe(problem, expert);
  EXPECT_TRUE(plan);
  ExpertScratch scratch;
  EXPECT_TRUE(scratch.lay_out(*plan));
  const auto packed = backend.pack_expert(problem, *plan, expert, scratch.shares);
  return packed ? "" : packed.error().message();
}

TEST(CpuFormsPacking, PartsUnlikeTheSchemeAreNamedWithBothSides) {
  const auto scheme = [](std::size_t i) { return schemes()[i].scheme; };
  const auto expert_of = [](const LayerSpec& spec) {
    return test::random_weights(spec).experts.front();
  };
  using ::testing::HasSubstr;
  {
    const LayerSpec spec = spec_of(scheme(4), 64, 32, 1);
    ExpertWeights expert = expert_of(spec);
    expert.up.zero_points.view.dtype = DType::i32;
    EXPECT_THAT(packing_error(test::problem_of(spec, 1, 1), expert),
                HasSubstr("up: zero_points in i32, expected u8"));
    expert = expert_of(spec);
    expert.down.offsets = expert.down.scales;
    EXPECT_THAT(packing_error(test::problem_of(spec, 1, 1), expert),
                HasSubstr("down: offsets beside the codes, expected none"));
    expert = expert_of(spec);
    expert.gate->scales.view.bytes = expert.gate->scales.view.bytes.first(10);
    EXPECT_THAT(packing_error(test::problem_of(spec, 1, 1), expert),
                HasSubstr("gate: scales of 10 bytes, expected 128"));
  }
  const LayerSpec spec = spec_of(scheme(5), 64, 32, 1);
  ExpertWeights expert = expert_of(spec);
  std::vector<std::int32_t> index(64, 0);
  for (std::size_t i = 40; i < 64; ++i) index[i] = 1;
  const Tensor uneven = test::owned_tensor(DType::i32, {64}, std::move(index));
  expert.gate->g_idx = expert.up.g_idx = uneven;
  EXPECT_THAT(packing_error(test::problem_of(spec, 1, 1), expert),
              HasSubstr("gate: group 0 of the act-order has 40 columns, expected 32"));
  expert = expert_of(spec);
  std::vector<std::int32_t> plain(64, 0);
  for (std::size_t i = 32; i < 64; ++i) plain[i] = 1;
  expert.up.g_idx = test::owned_tensor(DType::i32, {64}, std::move(plain));
  EXPECT_THAT(packing_error(test::problem_of(spec, 1, 1), expert),
              HasSubstr("up: gate and up have different act-orders"));
}

}  // namespace
}  // namespace fewbit
