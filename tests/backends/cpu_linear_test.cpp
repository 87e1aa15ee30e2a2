// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backends/moe_case.hpp"
#include "core/aligned_buffer.hpp"
#include "core/convert.hpp"
#include "fewbit/linear.hpp"
#include "kernels/levels.hpp"

namespace fewbit {
namespace {

using test::LayerSpec;

struct Size {
  std::int64_t n, k;
};

class CpuLinear : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override { FEWBIT_SKIP_UNUSABLE(GetParam()); }

  static Result<LinearLayer> prepare(const LinearProblem& problem, const QuantizedTensor& weight) {
    return LinearLayer::prepare(problem, weight, *detect_cpu(),
                                {.backend = std::string("cpu_") + isa_name(GetParam())},
                                serial_executor());
  }

  // y of random tokens; x is a copy of the layer's input in f32.
  static std::vector<float> run(const LinearLayer& layer, const std::vector<float>& x,
                                std::int64_t tokens, Executor& executor = serial_executor()) {
    const LinearProblem& problem = layer.problem();
    AlignedBuffer workspace = *AlignedBuffer::allocate(*layer.workspace_bytes(tokens));
    std::memset(workspace.data(), 0xff, workspace.size());
    std::vector<std::byte> input(
        x.size() * static_cast<std::size_t>(dtype_bits(problem.activation_dtype)) / 8);
    EXPECT_TRUE(convert_from_f32(x, problem.activation_dtype, input));
    const TensorView view{.dtype = problem.activation_dtype,
                          .shape = {tokens, problem.k},
                          .bytes = input,
                          .device = {}};
    const auto size =
        static_cast<std::size_t>(tokens * problem.n * dtype_bits(problem.output_dtype) / 8);
    std::vector<std::byte> y(size + 64, std::byte{0x5a});
    EXPECT_TRUE(layer.run(tokens, view, std::span(y).first(size), workspace.span(), executor));
    for (std::size_t i = size; i < y.size(); ++i) EXPECT_EQ(y[i], std::byte{0x5a});
    y.resize(size);
    return test::to_f32(problem.output_dtype, y);
  }

  static void expect_within_bound(DType weight, Size size, std::int64_t tokens, DType activation,
                                  DType output) {
    const LayerSpec spec{.experts = 1,
                         .hidden_size = size.k,
                         .intermediate_size = size.n,
                         .weight = weight,
                         .activation = {}};
    const MoeWeights weights = test::random_weights(spec);
    const QuantizedTensor& w = weights.experts[0].up;
    std::vector<float> dense(static_cast<std::size_t>(size.n * size.k));
    ASSERT_TRUE(dequantize_rows(w, 0, dense));
    MoeProblem shape = test::problem_of(spec, 1, tokens);
    shape.activation_dtype = activation;
    const std::vector<float> x = test::random_call(shape, tokens, 5).hidden;
    const auto layer = prepare({.n = size.n,
                                .k = size.k,
                                .weight = w.scheme,
                                .activation_dtype = activation,
                                .output_dtype = output,
                                .max_tokens = tokens,
                                .where = "test linear"},
                               w);
    ASSERT_TRUE(layer) << layer.error().message();
    const std::vector<float> y = run(*layer, x, tokens);
    const double unit = output == DType::f32 ? 0 : output == DType::bf16 ? 0x1p-8 : 0x1p-11;
    const double roundings = static_cast<double>(std::max(size.k, size.k / 16 + 20)) * 0x1p-24;
    for (std::int64_t i = 0; i < tokens * size.n; ++i) {
      double sum = 0;
      double magnitude = 0;
      for (std::int64_t k = 0; k < size.k; ++k) {
        const double product = double{x[static_cast<std::size_t>(i / size.n * size.k + k)]} *
                               double{dense[static_cast<std::size_t>(i % size.n * size.k + k)]};
        sum += product;
        magnitude += std::abs(product);
      }
      const double error = roundings * magnitude;
      ASSERT_LE(std::abs(y[static_cast<std::size_t>(i)] - sum),
                error + unit * (std::abs(sum) + error))
          << dtype_name(weight) << " " << size.n << " x " << size.k << " element " << i;
    }
  }
};

TEST_P(CpuLinear, EveryWeightInputAndOutputType) {
  for (const DType weight : {DType::f4_e2m1, DType::bf16, DType::f16, DType::f32})
    for (const DType activation : {DType::bf16, DType::f16, DType::f32})
      for (const DType output : {DType::bf16, DType::f16, DType::f32})
        expect_within_bound(weight, {.n = 150, .k = 48}, 5, activation, output);
}

TEST_P(CpuLinear, AnyShapeAndNumberOfTokens) {
  for (const std::int64_t tokens : {1, 2, 23, 24, 25, 65, 1030})
    for (const DType weight : {DType::f4_e2m1, DType::bf16})
      expect_within_bound(weight, {.n = 34, .k = 64}, tokens, DType::bf16, DType::f32);
  for (const Size size : {Size{48, 464}, Size{4304, 16}, Size{80, 2880}, Size{160, 2688}})
    for (const DType weight : {DType::f4_e2m1, DType::bf16})
      expect_within_bound(weight, size, 3, DType::f32, DType::f32);
  for (const Size size : {Size{1, 1}, Size{17, 5}, Size{5, 33}})
    expect_within_bound(DType::bf16, size, 3, DType::f32, DType::f32);
}

TEST_P(CpuLinear, SameBitsForAnyNumberOfThreadsAndTokens) {
  const LayerSpec spec{.experts = 1,
                       .hidden_size = 1024,
                       .intermediate_size = 200,
                       .weight = DType::f4_e2m1,
                       .activation = {}};
  const MoeWeights weights = test::random_weights(spec);
  const auto layer = prepare({.n = 200,
                              .k = 1024,
                              .weight = nvfp4_scheme(),
                              .activation_dtype = DType::bf16,
                              .output_dtype = DType::f32,
                              .max_tokens = 50,
                              .where = "test linear"},
                             weights.experts[0].up);
  ASSERT_TRUE(layer) << layer.error().message();
  const std::vector<float> x = test::random_call(test::problem_of(spec, 1, 50), 50, 5).hidden;
  const std::vector<float> serial = run(*layer, x, 50);
  for (int threads = 1; threads <= 4; ++threads) {
    const auto pool = make_thread_pool(threads);
    ASSERT_TRUE(pool);
    EXPECT_EQ(run(*layer, x, 50, **pool), serial) << threads << " threads";
  }
  for (std::ptrdiff_t t = 0; t < 50; t += 7) {
    const std::vector<float> alone(x.begin() + t * 1024, x.begin() + (t + 1) * 1024);
    EXPECT_EQ(run(*layer, alone, 1),
              std::vector<float>(serial.begin() + t * 200, serial.begin() + (t + 1) * 200));
  }
}

FEWBIT_INSTANTIATE_LEVELS(CpuLinear);

}  // namespace
}  // namespace fewbit
