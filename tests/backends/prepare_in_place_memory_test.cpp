// SPDX-License-Identifier: Apache-2.0
// What preparing in place takes beside the weights.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <span>

#include "fewbit/prepare_in_place.hpp"
#include "layout/counting_memory.hpp"

namespace fewbit {
namespace {

constexpr std::int64_t experts = 64;
constexpr std::int64_t size = 2048;
constexpr std::int64_t code_bytes = size * size / 2;
constexpr std::int64_t scale_bytes = size * size / 16;
constexpr std::int64_t expert_bytes = 2 * (code_bytes + scale_bytes);  // up and down
constexpr std::int64_t slack = std::int64_t{4} << 20;

TEST(PrepareInPlaceMemory, TakesOneExpertBesideSixtyFour) {
  const auto bytes = static_cast<std::size_t>(experts * expert_bytes);
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const std::span memory(static_cast<std::byte*>(mapped), bytes);
  std::size_t used = 0;
  const auto take = [&](DType dtype, std::int64_t columns, std::int64_t count) {
    const auto part = memory.subspan(used, static_cast<std::size_t>(count));
    used += part.size();
    return Tensor{.view = {.dtype = dtype, .shape = {size, columns}, .bytes = part, .device = {}},
                  .owner = nullptr};
  };
  const auto matrix = [&] {
    Tensor codes = take(DType::f4_e2m1, size, code_bytes);
    Tensor scales = take(DType::f8_e4m3, size / 16, scale_bytes);
    return *make_nvfp4(size, size, std::move(codes), std::move(scales), 0.5F);
  };
  MoeWeights weights{.hidden_size = size, .intermediate_size = size, .experts = {}};
  for (std::int64_t e = 0; e < experts; ++e) {
    ExpertWeights expert;
    expert.up = matrix();
    expert.down = matrix();
    weights.experts.push_back(std::move(expert));
  }
  ASSERT_EQ(used, bytes);
  MoeProblem problem;
  problem.hidden_size = size;
  problem.intermediate_size = size;
  problem.num_experts = experts;
  problem.gate_up = weights.experts[0].up.scheme;
  problem.down = problem.gate_up;
  problem.activation.kind = Activation::relu2;
  problem.where = "experts";
  const auto device = detect_cpu();
  ASSERT_TRUE(device);
  const auto selection = select_backend(problem, *device, {.backend = "cpu_generic"});
  ASSERT_TRUE(selection) << selection.error().message();

  testing::reset_peak();
  const std::int64_t before = testing::allocated_bytes();
  const auto layer = prepare_in_place(*selection, problem, weights, memory, *device);
  ASSERT_TRUE(layer) << layer.error().message();
  const std::int64_t taken = testing::peak_bytes() - before;
  EXPECT_LE(taken, expert_bytes + slack);
  EXPECT_GE(taken, expert_bytes);
  EXPECT_LE(testing::allocated_bytes() - before, slack);
  ::munmap(mapped, bytes);
}

}  // namespace
}  // namespace fewbit
