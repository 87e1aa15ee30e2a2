// SPDX-License-Identifier: Apache-2.0
// Where fused kernels are known to go wrong, ours don't: small outputs, large activations, odd
// sizes, an expert named twice, global scales of every shape.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "backends/moe_case.hpp"
#include "core/float_convert.hpp"
#include "kernels/levels.hpp"

namespace fewbit {
namespace {

using test::Call;
using test::LayerSpec;

// Codes and scales of one e2m1 matrix. What follows them in memory are NaN scales and codes of 6:
// a kernel that reads on gives other sums.
struct F4Matrix {
  std::int64_t n = 0, k = 0;
  DType scale = DType::f8_e4m3;  // or f8_e8m0
  std::vector<std::uint8_t> codes, scales;
  float global = 1.0F;

  QuantizedTensor tensor() const {
    const std::int64_t group = scale == DType::f8_e4m3 ? 16 : 32;
    const auto guarded = [](DType dtype, Shape shape, std::vector<std::uint8_t> bytes,
                            std::uint8_t guard) {
      const std::size_t used = bytes.size();
      bytes.insert(bytes.end(), 256, guard);
      Tensor out = test::owned_tensor(dtype, shape, std::move(bytes));
      out.view.bytes = out.view.bytes.first(used);
      return out;
    };
    QuantizedTensor out;
    out.n = n;
    out.k = k;
    out.scheme = nvfp4_scheme();
    out.scheme.scale->dtype = scale;
    out.scheme.scale->granularity.cols = group;
    out.scheme.scale->has_global = scale == DType::f8_e4m3;
    out.codes = guarded(DType::u8, {n, k / 2}, codes, 0x77);
    out.scales =
        guarded(scale, {n, (k + group - 1) / group}, scales, scale == DType::f8_e4m3 ? 0x7f : 0xff);
    out.global_scale = global;
    return out;
  }
};

// Positive codes and scales of 2^power to 2^(power + 2), so that no sum cancels.
F4Matrix positive_matrix(std::int64_t n, std::int64_t k, DType scale, int power,
                         std::mt19937& random) {
  F4Matrix m{.n = n, .k = k, .scale = scale, .codes = {}, .scales = {}};
  for (std::int64_t i = 0; i < n * k / 2; ++i) {
    m.codes.push_back(static_cast<std::uint8_t>((1 + random() % 7) << 4 | (1 + random() % 7)));
  }
  const std::int64_t group = scale == DType::f8_e4m3 ? 16 : 32;
  for (std::int64_t i = 0; i < n * ((k + group - 1) / group); ++i) {
    m.scales.push_back(scale == DType::f8_e4m3 ? static_cast<std::uint8_t>(0x38 + random() % 16)
                                               : static_cast<std::uint8_t>(
                                                     127 + power + static_cast<int>(random() % 3)));
  }
  if (scale == DType::f8_e4m3) m.global = std::ldexp(1.0F, power);
  return m;
}

struct Sizes {
  std::int64_t hidden, intermediate;
};

// One expert or more of positive matrices; weights of gate and up around 1 / hidden.
MoeWeights positive_weights(Sizes sizes, DType scale, int down_power, std::int64_t experts = 1) {
  std::mt19937 random(7);
  const int up_power = -3 - static_cast<int>(std::log2(sizes.hidden));
  const auto matrix = [&](std::int64_t n, std::int64_t k, int power) {
    return positive_matrix(n, k, scale, power, random).tensor();
  };
  MoeWeights weights{
      .hidden_size = sizes.hidden, .intermediate_size = sizes.intermediate, .experts = {}};
  for (std::int64_t e = 0; e < experts; ++e) {
    weights.experts.push_back({.gate = matrix(sizes.intermediate, sizes.hidden, up_power),
                               .up = matrix(sizes.intermediate, sizes.hidden, up_power),
                               .down = matrix(sizes.hidden, sizes.intermediate, down_power)});
  }
  return weights;
}

MoeProblem problem_of(const MoeWeights& weights, int top_k, std::int64_t tokens) {
  MoeProblem problem = test::problem_of(
      {.experts = static_cast<std::int64_t>(weights.experts.size()),
       .hidden_size = weights.hidden_size,
       .intermediate_size = weights.intermediate_size,
       .activation = {.kind = weights.experts[0].gate ? Activation::silu : Activation::relu2}},
      top_k, tokens);
  problem.gate_up = weights.experts[0].up.scheme;
  problem.down = weights.experts[0].down.scheme;
  return problem;
}

// Tokens of values from 1/2 to 1, all routed to expert 0.
Call positive_call(const MoeProblem& problem, std::int64_t tokens) {
  Call call = test::random_call(problem, tokens, 5);
  for (float& x : call.hidden) {
    x = bf16_to_f32(f32_to_bf16(0.5F + 0.5F * std::min(1.0F, std::abs(x))));
  }
  std::ranges::fill(call.ids, 0);
  for (float& w : call.weights) w += 0.25F;
  return call;
}

class MoeFaults : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string name = GetParam();
    if (!name.starts_with("cpu_")) return;
    FEWBIT_SKIP_UNUSABLE(*isa_from_name(name.substr(4)));
  }
  static std::vector<float> run(const MoeProblem& problem, const MoeWeights& weights,
                                const Call& call) {
    const auto layer = test::prepare(GetParam(), problem, weights, *detect_cpu());
    EXPECT_TRUE(layer) << layer.error().message();
    if (!layer) return {};
    const auto bytes = test::run(*layer, call);
    EXPECT_TRUE(bytes) << bytes.error().message();
    return bytes ? test::to_f32(problem.activation_dtype, *bytes) : std::vector<float>{};
  }
  // Sums of positive terms: every element is within two roundings to the type, and f32 noise, of
  // the exact one.
  static void expect_relative(const MoeProblem& problem, const MoeWeights& weights,
                              const Call& call) {
    const std::vector<float> out = run(problem, weights, call);
    const MoeReferenceResult want = test::expected(problem, weights, call);
    ASSERT_EQ(out.size(), want.out.size());
    const double bound = problem.activation_dtype == DType::f32 ? 0x1p-18 : 0x1p-7 + 0x1p-15;
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_GT(want.out[i], 0);
      ASSERT_LE(std::abs(out[i] - want.out[i]), bound * want.out[i])
          << "element " << i << ": " << out[i] << ", want " << want.out[i];
    }
  }
};

// Outputs from 1 down to 1e-30, with the router weight on either side.
TEST_P(MoeFaults, SmallOutputsAreAsExactAsLargeOnes) {
  for (const DType scale : {DType::f8_e4m3, DType::f8_e8m0}) {
    for (const int power : {-4, -12, -24, -60, -100}) {
      const MoeWeights weights = positive_weights({64, 64}, scale, power);
      MoeProblem problem = problem_of(weights, 2, 3);
      for (const auto side : {RouterWeightSide::output, RouterWeightSide::input}) {
        SCOPED_TRACE(testing::Message() << dtype_name(scale) << " 2^" << power);
        problem.router_weight_side = side;
        expect_relative(problem, weights, positive_call(problem, 3));
      }
    }
  }
}

// Router weight and scales are not rounded to the activation type: 1.5 (1 + 0.4 * 2^-7) is nearer
// to 1.5 + 2^-7, but with the weight rounded first it would be 1.5.
TEST_P(MoeFaults, RouterWeightsAreNotRounded) {
  MoeWeights weights{.hidden_size = 1, .intermediate_size = 1, .experts = {}};
  weights.experts.push_back({.gate = std::nullopt,
                             .up = test::f32_matrix(1, 1, {1}),
                             .down = test::f32_matrix(1, 1, {1.5F})});
  const MoeProblem problem = problem_of(weights, 1, 1);
  const Call call{
      .tokens = 1, .hidden = {1}, .ids = {0}, .weights = {1 + 0.4F * 0x1p-7F}, .expert_map = {}};
  EXPECT_EQ(run(problem, weights, call), std::vector{1.5F + 0x1p-7F});
  // The engines' form.
  const auto staged =
      moe_reference(weights, test::input_of(call),
                    {.activation = problem.activation, .rounding = MoeRounding::staged_bf16});
  EXPECT_EQ(staged->out, std::vector{1.5});
}

// bf16 reaches further than f16's 65504.
TEST_P(MoeFaults, LargeActivationsStayFinite) {
  const MoeWeights weights = positive_weights({64, 32}, DType::f8_e4m3, -4);
  const MoeProblem problem = problem_of(weights, 1, 2);
  Call call = positive_call(problem, 2);
  for (float& x : call.hidden) x *= 0x1p40F;
  expect_relative(problem, weights, call);
}

// Intermediate sizes that fill no tile of 64 to 256, with a short last group of scales.
TEST_P(MoeFaults, SizesThatNoTileDivides) {
  for (const DType scale : {DType::f8_e4m3, DType::f8_e8m0}) {
    for (const Sizes sizes : {Sizes{256, 192}, Sizes{256, 352}, Sizes{384, 384}, Sizes{96, 1408},
                              Sizes{2880, 48}, Sizes{640, 16}}) {
      SCOPED_TRACE(testing::Message() << dtype_name(scale) << " " << sizes.intermediate);
      const MoeWeights weights = positive_weights(sizes, scale, -4);
      const MoeProblem problem = problem_of(weights, 2, 2);
      expect_relative(problem, weights, positive_call(problem, 1));
      expect_relative(problem, weights, positive_call(problem, 2));
    }
  }
}

// One token that names an expert twice gets both weights.
TEST_P(MoeFaults, OneTokenMayNameAnExpertTwice) {
  const MoeWeights weights = positive_weights({64, 32}, DType::f8_e4m3, -4, 3);
  MoeProblem problem = problem_of(weights, 2, 1);
  problem.activation_dtype = DType::f32;
  Call call = positive_call(problem, 1);
  call.ids = {2, 2};
  call.weights = {0.25F, 0.5F};
  expect_relative(problem, weights, call);
  call.weights = {0.25F, 0.25F};
  const std::vector<float> twice = run(problem, weights, call);
  call.ids = {2, -1};
  const std::vector<float> once = run(problem, weights, call);
  ASSERT_EQ(once.size(), 64U);
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_EQ(twice[i], 2 * once[i]) << i;
}

// Twice the global scale of up is four times the square of its relu, twice that of down twice the
// output: powers of two, so to the bit.
TEST_P(MoeFaults, NoShapeIgnoresItsGlobalScales) {
  std::mt19937 random(3);
  F4Matrix up = positive_matrix(1856, 2688, DType::f8_e4m3, -12, random);
  F4Matrix down = positive_matrix(2688, 1856, DType::f8_e4m3, -12, random);
  const auto run_with = [&](float factor) {
    MoeWeights weights{.hidden_size = 2688, .intermediate_size = 1856, .experts = {}};
    weights.experts.push_back({.gate = std::nullopt, .up = up.tensor(), .down = down.tensor()});
    weights.experts[0].up.global_scale *= factor;
    weights.experts[0].down.global_scale *= factor;
    const MoeProblem problem = problem_of(weights, 1, 1);
    return run(problem, weights, positive_call(problem, 1));
  };
  const std::vector<float> one = run_with(1);
  const std::vector<float> two = run_with(2);
  ASSERT_EQ(two.size(), 2688U);
  for (std::size_t i = 0; i < one.size(); ++i) {
    ASSERT_GT(one[i], 0);
    ASSERT_EQ(two[i], 8 * one[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, MoeFaults,
                         testing::Values("reference", "cpu_generic", "cpu_avx2", "cpu_avx512"),
                         [](const auto& param) { return std::string(param.param); });

// 2^-127 in every activation type, and NaN for 255, in its own expert only.
TEST(ExponentBytes, MeanTheSameForEveryActivationType) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    F4Matrix down{.n = 1, .k = 32, .scale = DType::f8_e8m0, .codes = {}, .scales = {0}};
    down.codes.assign(16, 0x07);  // 6 and 0
    MoeWeights weights{.hidden_size = 1, .intermediate_size = 32, .experts = {}};
    const QuantizedTensor up = test::f32_matrix(32, 1, std::vector<float>(32, 1.0F));
    weights.experts.push_back({.gate = std::nullopt, .up = up, .down = down.tensor()});
    down.scales = {255};
    weights.experts.push_back({.gate = std::nullopt, .up = up, .down = down.tensor()});
    MoeProblem problem = problem_of(weights, 1, 2);
    problem.activation_dtype = dtype;
    const auto layer = test::prepare("reference", problem, weights, test::generic_cpu());
    ASSERT_TRUE(layer) << layer.error().message();
    const Call call{.tokens = 2,
                    .hidden = {1, 1},
                    .ids = {0, 1},
                    .weights = {0x1p120F, 0x1p120F},
                    .expert_map = {}};
    const std::vector<float> out = test::to_f32(dtype, *test::run(*layer, call));
    EXPECT_EQ(out[0], 16 * 6 * 0x1p-7F) << dtype_name(dtype);
    EXPECT_TRUE(std::isnan(out[1])) << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace fewbit
