// SPDX-License-Identifier: Apache-2.0
// Layers prepared in the memory of their weights.
#include "fewbit/prepare_in_place.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "backends/moe_case.hpp"
#include "core/aligned_buffer.hpp"
#include "core/checked.hpp"

namespace fewbit {
namespace {

using test::LayerSpec;

constexpr LayerSpec layer_spec{.hidden_size = 64,
                               .intermediate_size = 96,
                               .weight = DType::f4_e2m1,
                               .activation = {.kind = Activation::silu}};

// A copy of weights whose codes and scales lie in one buffer.
struct InOneBuffer {
  AlignedBuffer memory = *AlignedBuffer::allocate(1 << 20);
  MoeWeights weights;
  std::size_t used = 0;

  explicit InOneBuffer(const MoeWeights& from) : weights(from) {
    for (ExpertWeights& expert : weights.experts) {
      if (expert.gate) take(*expert.gate);
      take(expert.up);
      take(expert.down);
    }
  }
  void take(QuantizedTensor& matrix) {
    for (Tensor* part : {&matrix.codes, &matrix.scales}) {
      if (part->empty()) continue;
      const auto to = memory.span().subspan(used, part->view.bytes.size());
      std::ranges::copy(part->view.bytes, to.begin());
      *part = Tensor{.view = part->view, .owner = nullptr};
      part->view.bytes = to;
      used = round_up(used + to.size(), std::size_t{64});
    }
  }
};

Result<MoeLayer> in_place(const std::string& backend, const MoeProblem& problem,
                          const MoeWeights& weights, std::span<std::byte> memory) {
  const DeviceInfo device = test::generic_cpu();
  FEWBIT_TRY(const Selection selection, select_backend(problem, device, {.backend = backend}));
  return prepare_in_place(selection, problem, weights, memory, device);
}

std::string error_of(const MoeProblem& problem, const InOneBuffer& given,
                     std::span<std::byte> memory) {
  const auto layer = in_place("cpu_generic", problem, given.weights, memory);
  return layer ? "no error" : layer.error().message();
}

// Whatever is packed and whatever is read as it lies.
TEST(PrepareInPlace, GivesTheBitsOfALayerWithMemoryOfItsOwn) {
  for (const DType weight : {DType::f4_e2m1, DType::bf16}) {
    for (const Activation activation : {Activation::silu, Activation::relu2}) {
      LayerSpec spec = layer_spec;
      spec.weight = weight;
      spec.activation.kind = activation;
      const MoeProblem problem = test::problem_of(spec, 2, 8);
      const MoeWeights weights = test::random_weights(spec);
      for (const char* backend : {"cpu_generic", "reference"}) {
        InOneBuffer given(weights);
        const std::vector<std::byte> before(given.memory.span().begin(), given.memory.span().end());
        const auto layer = in_place(backend, problem, given.weights, given.memory.span());
        ASSERT_TRUE(layer) << layer.error().message();
        const auto own = test::prepare(backend, problem, weights, test::generic_cpu());
        ASSERT_TRUE(own) << own.error().message();
        const auto call = test::random_call(problem, 8, 3);
        EXPECT_EQ(*test::run(*layer, call), *test::run(*own, call)) << backend;
        EXPECT_EQ(layer->info().owned_bytes, 0U);
        const bool packs = weight == DType::f4_e2m1 && std::string_view(backend) != "reference";
        EXPECT_EQ(!std::ranges::equal(before, given.memory.span()), packs) << backend;
      }
    }
  }
}

TEST(PrepareInPlace, RefusesPartsThatAreNotTheCallersToReplace) {
  const MoeProblem problem = test::problem_of(layer_spec, 2, 8);
  const MoeWeights weights = test::random_weights(layer_spec);
  InOneBuffer given(weights);
  const std::vector<std::byte> before(given.memory.span().begin(), given.memory.span().end());
  const auto memory = given.memory.span();
  EXPECT_NE(error_of(problem, given, memory.first(given.used - 64))
                .find("expert 3 down.scales: its 384 bytes are not in the memory of "),
            std::string::npos);
  EXPECT_NE(
      error_of(problem, given, memory.subspan(64)).find("expert 0 gate.codes: its 3072 bytes"),
      std::string::npos);
  EXPECT_NE(error_of(problem, given, {}).find("not in the memory of 0 bytes"), std::string::npos);

  InOneBuffer shared(weights);
  shared.weights.experts[2].up.codes = shared.weights.experts[1].up.codes;
  EXPECT_NE(error_of(problem, shared, shared.memory.span()).find("shares bytes with expert "),
            std::string::npos);

  InOneBuffer moved(weights);
  auto& codes = moved.weights.experts[1].down.codes.view.bytes;
  codes = moved.memory.span().subspan(moved.used + 8, codes.size());
  EXPECT_NE(error_of(problem, moved, moved.memory.span())
                .find("expert 1 down.codes: begins 8 bytes behind a multiple of 64"),
            std::string::npos);
  // Nothing was written.
  EXPECT_TRUE(std::ranges::equal(before, memory));
}

// 16 x 2 scales fill half of the 64 bytes that kernels read.
TEST(PrepareInPlace, RefusesLayoutsThatNeedMoreRoom) {
  LayerSpec spec = layer_spec;
  spec.hidden_size = 32;
  spec.intermediate_size = 16;
  const MoeProblem problem = test::problem_of(spec, 2, 8);
  InOneBuffer given(test::random_weights(spec));
  EXPECT_NE(error_of(problem, given, given.memory.span())
                .find("expert 0 gate.scales: 64 bytes in place of 32: cpu_f4_lane16_scales pads"),
            std::string::npos);
}

}  // namespace
}  // namespace fewbit
