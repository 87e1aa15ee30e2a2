// SPDX-License-Identifier: Apache-2.0
// The CPU backends on experts and dense weights in GGUF's Q4_K and Q6_K blocks, which are kept as
// they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backends/accumulation_bound.hpp"
#include "backends/moe_case.hpp"
#include "backends/rounding_bound.hpp"
#include "checkpoint/gguf_types.hpp"
#include "kernels/levels.hpp"
#include "select/backend.hpp"
#include "select/expert_scratch.hpp"

namespace fewbit {
namespace {

using ::testing::HasSubstr;

Scheme block_scheme(const char* type) {
  Scheme scheme;
  scheme.producer = Producer::gguf;
  scheme.weight = DType::u8;
  scheme.packing = Packing::ggml;
  scheme.ggml_type = find_gguf_type(type)->id;
  return scheme;
}

QuantizedTensor random_blocks(const char* name, std::int64_t n, std::int64_t k,
                              std::mt19937& random) {
  const GgufType& type = *find_gguf_type(name);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(n * k / type.elements * type.bytes));
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(type.bytes)) {
    const bool q6 = std::string_view(name) == "Q6_K";
    for (const std::size_t high : {q6 ? at + 209 : at + 1, q6 ? at + 209 : at + 3})
      bytes[high] = static_cast<std::uint8_t>((bytes[high] & 0x83U) | 0x10U);
  }
  QuantizedTensor out;
  out.n = n;
  out.k = k;
  out.scheme = block_scheme(name);
  out.codes = test::owned_tensor(DType::u8, {n, k / type.elements * type.bytes}, std::move(bytes));
  return out;
}

struct Case {
  MoeProblem problem;
  MoeWeights weights;
};

// Gate and up in one type and down in another, as such files have them.
Case make_case(const char* gate_up, const char* down, std::int64_t hidden, std::int64_t inner,
               std::int64_t experts) {
  std::mt19937 random(3);
  Case out;
  out.weights = {.hidden_size = hidden, .intermediate_size = inner, .experts = {}};
  for (std::int64_t e = 0; e < experts; ++e) {
    ExpertWeights expert;
    expert.gate = random_blocks(gate_up, inner, hidden, random);
    expert.up = random_blocks(gate_up, inner, hidden, random);
    expert.down = random_blocks(down, hidden, inner, random);
    out.weights.experts.push_back(std::move(expert));
  }
  const test::LayerSpec spec{.experts = experts,
                             .hidden_size = hidden,
                             .intermediate_size = inner,
                             .weight = DType::bf16,
                             .activation = {}};
  out.problem = test::problem_of(spec, 2, 512);
  out.problem.gate_up = block_scheme(gate_up);
  out.problem.down = block_scheme(down);
  return out;
}

class CpuKBlocks : public ::testing::TestWithParam<IsaLevel> {
 protected:
  void SetUp() override { FEWBIT_SKIP_UNUSABLE(GetParam()); }
  static std::string backend() { return std::string("cpu_") + isa_name(GetParam()); }
};

TEST_P(CpuKBlocks, LayersStayWithinTheBound) {
  for (const auto& [gate_up, down] : {std::pair{"Q4_K", "Q6_K"}, std::pair{"Q6_K", "Q4_K"}}) {
    Case c = make_case(gate_up, down, 512, 256, 3);
    for (const DType dtype : {DType::bf16, DType::f32}) {
      c.problem.activation_dtype = dtype;
      const auto layer = test::prepare(backend(), c.problem, c.weights, *detect_cpu());
      ASSERT_TRUE(layer) << layer.error().message();
      EXPECT_EQ(layer->info().layout, std::string_view(gate_up) == "Q4_K"
                                          ? "cpu_q4_k_lane16, cpu_q6_k_lane16"
                                          : "cpu_q6_k_lane16, cpu_q4_k_lane16");
      for (const std::int64_t tokens : {1, 2, 7, 40}) {
        const test::Call call = test::random_call(c.problem, tokens, 3);
        const std::vector<float> out = test::to_f32(dtype, *test::run(*layer, call));
        const MoeReferenceResult want = test::expected(c.problem, c.weights, call);
        const auto rounding =
            test::rounding_bound(c.problem, c.weights, test::input_of(call), want);
        ASSERT_TRUE(rounding) << rounding.error().message();
        const auto accumulation = test::accumulation_bound(c.problem, c.weights, call, want);
        for (std::size_t i = 0; i < out.size(); ++i) {
          ASSERT_LE(std::abs(out[i] - want.out[i]), (*rounding)[i] + accumulation[i])
              << gate_up << " element " << i << ", " << tokens << " tokens";
        }
        const auto pool = make_thread_pool(3);
        EXPECT_EQ(test::to_f32(dtype, *test::run(*layer, call, **pool)), out) << "three threads";
      }
    }
  }
}

// Rows that fill no block of 16, one to 512 tokens.
TEST_P(CpuKBlocks, LinearLayersStayWithinTheBound) {
  for (const char* type : {"Q4_K", "Q6_K"}) {
    for (const std::int64_t n : {48, 80, 150}) {
      std::mt19937 random(6);
      const std::int64_t k = 768;
      const QuantizedTensor weight = random_blocks(type, n, k, random);
      std::vector<float> dense(static_cast<std::size_t>(n * k));
      ASSERT_TRUE(dequantize_rows(weight, 0, dense));
      const auto layer =
          LinearLayer::prepare({.n = n,
                                .k = k,
                                .weight = weight.scheme,
                                .activation_dtype = DType::f32,
                                .output_dtype = DType::f32,
                                .max_tokens = 512,
                                .where = "test linear"},
                               weight, *detect_cpu(), {.backend = backend()}, serial_executor());
      ASSERT_TRUE(layer) << layer.error().message();
      for (const std::int64_t tokens : {1, 25, 512}) {
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
        for (std::size_t i = 0; i < y.size(); i += 7) {
          const std::size_t row = i % static_cast<std::size_t>(n) * static_cast<std::size_t>(k);
          const std::size_t token = i / static_cast<std::size_t>(n) * static_cast<std::size_t>(k);
          double sum = 0;
          double magnitude = 0;
          for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
            const double product = double{x[token + j]} * double{dense[row + j]};
            sum += product;
            magnitude += std::abs(product);
          }
          ASSERT_LE(std::abs(y[i] - sum), static_cast<double>(k) * 0x1p-24 * magnitude)
              << type << " n " << n << " element " << i;
        }
      }
    }
  }
}

FEWBIT_INSTANTIATE_LEVELS(CpuKBlocks);

// In whole blocks of rows a packed buffer has the size of the blocks, and nothing stands beside it.
TEST(CpuKBlocksPacking, UnpackGivesTheBlocksBack) {
  const Case c = make_case("Q4_K", "Q6_K", 512, 256, 1);
  const Backend& backend = *find_backend("cpu_generic");
  const ExpertWeights& expert = c.weights.experts.front();
  const auto plan = backend.plan_moe(c.problem, expert);
  ASSERT_TRUE(plan) << plan.error().message();
  ASSERT_EQ(plan->buffers.size(), 4U);  // three of blocks, one of global scales
  EXPECT_EQ(plan->buffers[0].layout, "cpu_q4_k_lane16");
  EXPECT_EQ(plan->buffers[2].layout, "cpu_q6_k_lane16");
  EXPECT_EQ(plan->buffers[0].shape, (Shape{256 * 2 * 144}));
  EXPECT_EQ(plan->buffers[2].shape, (Shape{512 * 210}));
  ExpertScratch scratch;
  ASSERT_TRUE(scratch.lay_out(*plan));
  std::memset(scratch.memory.data(), 0xff, scratch.memory.size());
  ASSERT_TRUE(backend.pack_expert(c.problem, *plan, expert, scratch.shares));
  const std::vector<std::span<const std::byte>> shares(scratch.shares.begin(),
                                                       scratch.shares.end());
  const auto back = backend.unpack_expert(c.problem, *plan, shares);
  ASSERT_TRUE(back) << back.error().message();
  for (const auto& [got, want] :
       {std::pair{&*back->gate, &*expert.gate}, std::pair{&back->up, &expert.up},
        std::pair{&back->down, &expert.down}}) {
    EXPECT_EQ(got->scheme, want->scheme);
    EXPECT_TRUE(std::ranges::equal(got->codes.view.bytes, want->codes.view.bytes));
  }
}

TEST(CpuKBlocksRules, SizesAreWholeBlocksAndOtherTypesAreNamed) {
  Case c = make_case("Q4_K", "Q6_K", 512, 256, 1);
  const auto text_of = [&] {
    const auto selection =
        select_backend(c.problem, test::generic_cpu(), {.backend = "cpu_generic"});
    return selection ? "" : selection.error().what;
  };
  EXPECT_EQ(text_of(), "");
  c.problem.hidden_size = 2880;
  c.problem.intermediate_size = 464;
  EXPECT_THAT(text_of(), HasSubstr("hidden_size % 256 = 0, has 2880"));
  EXPECT_THAT(text_of(), HasSubstr("intermediate_size % 256 = 0, has 464"));
  c.problem.hidden_size = 512;
  c.problem.intermediate_size = 256;
  c.problem.down = block_scheme("Q5_K");
  EXPECT_THAT(text_of(), HasSubstr("down in bf16, f16, f32, GGUF's Q4_K or Q6_K, or e2m1"));
  EXPECT_THAT(text_of(), HasSubstr("has GGUF Q5_K"));
}

TEST(CpuKBlocksPacking, BlocksOfAnotherSizeAreRefusedWithBothNumbers) {
  Case c = make_case("Q4_K", "Q6_K", 512, 256, 1);
  ExpertWeights& expert = c.weights.experts.front();
  const Backend& backend = *find_backend("cpu_generic");
  const auto plan = backend.plan_moe(c.problem, expert);
  ASSERT_TRUE(plan);
  expert.up.codes.view.bytes = expert.up.codes.view.bytes.first(144);
  ExpertScratch scratch;
  ASSERT_TRUE(scratch.lay_out(*plan));
  const auto packed = backend.pack_expert(c.problem, *plan, expert, scratch.shares);
  ASSERT_FALSE(packed);
  EXPECT_THAT(packed.error().what, HasSubstr("up: codes of 144 bytes, expected 73728"));
}

}  // namespace
}  // namespace fewbit
