// SPDX-License-Identifier: Apache-2.0
// Which layers and calls run on tiles and on dot products of bf16 pairs, and what others are told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu/cpu.hpp"
#include "backends/cpu_tile_layer.hpp"
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

// 8 experts and top-k 2: 13 tokens give an expert 4 of them where routing is even, 12 give 3.
TEST(CpuTilesChoice, FewTokensOfAnExpertRunAsOnAvx512) {
  FEWBIT_SKIP_UNUSABLE(IsaLevel::avx512);
  LayerSpec spec =
      spec_of(test::scaled_scheme(DType::i4, DType::bf16, {.rows = 1, .cols = 32}), 64, 48, 8);
  const MoeProblem problem = test::problem_of(spec, 2, 13);
  const MoeWeights weights = test::random_weights(spec);
  const TileLayer usual(Unit::usual, problem, weights);
  const TileLayer tiles(Unit::soft, problem, weights);
  const TileLayer vectors(cpu_avx512_backend, problem, weights);
  const Call few = test::random_call(problem, 12, 21);
  const Call many = test::random_call(problem, 13, 22);
  test::tile_products = 0;
  EXPECT_EQ(usual.run(few), vectors.run(few));
  EXPECT_EQ(test::tile_products, 0);
  EXPECT_EQ(usual.run(many), tiles.run(many));
  EXPECT_GT(test::tile_products, 0);
}

// Of codes that dot products take and others, with activations that they take and others.
TEST(CpuTilesChoice, ExplainSaysWhetherDotProductsRun) {
  FEWBIT_SKIP_WITHOUT_DOTS();
  static cpu::Kernels kernels = cpu::kernels_of(IsaLevel::avx512, {.avx512_fast_bf16 = true});
  kernels.tiles = test::counted_dots;
  Backend backend = cpu_avx512_backend;
  backend.open_moe = [](const MoeProblem& problem, const MoePlan& plan, PreparedMemory memory) {
    return cpu::open_moe(kernels, problem, plan, std::move(memory));
  };
  const DeviceInfo without = *describe_device("cpu:avx512");
  DeviceInfo with = without;
  with.cpu.avx512_bf16 = with.cpu.avx512_fast_bf16 = true;
  std::vector<NamedScheme> schemes = tile_schemes();
  const std::int64_t taken = std::ssize(schemes);
  schemes.push_back({"nf3", test::scaled_scheme(DType::nf3, DType::bf16, {.rows = 1, .cols = 64})});
  std::int64_t by_dots = 0;
  for (const NamedScheme& named : schemes) {
    SCOPED_TRACE(named.name);
    const LayerSpec spec = spec_of(named.scheme, 128, 128, 2);
    MoeProblem problem = test::problem_of(spec, 2, 16);
    const MoeWeights weights = test::random_weights(spec);
    const TileLayer layer(backend, problem, weights);
    for (const std::int64_t tokens : {1, 16}) {
      test::tile_products = 0;
      layer.run(test::random_call(problem, tokens, 5));
      const std::string text = backend.variant(problem, with, tokens);
      const bool said = text.starts_with("dot products of bf16 pairs, ");
      EXPECT_EQ(said, test::tile_products > 0) << text;
      EXPECT_NE(said, text.starts_with("panels of ")) << text;
      EXPECT_THAT(backend.variant(problem, without, tokens), ::testing::StartsWith("panels of "));
      by_dots += said ? 1 : 0;
    }
    problem.activation_dtype = DType::f32;
    EXPECT_THAT(backend.variant(problem, with, 16), ::testing::StartsWith("panels of "));
  }
  EXPECT_EQ(by_dots, 2 * taken);
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
  const Scheme other = test::scaled_scheme(DType::nf3, DType::bf16, {.rows = 1, .cols = 64});
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
      spec_of(test::scaled_scheme(DType::i8, DType::f32, {.rows = 1, .cols = 0}), 64, 48, 8);
  const MoeProblem problem = test::problem_of(spec, 2, 600);
  const TileLayer layer(Unit::usual, problem, test::random_weights(spec));
  for (std::int64_t tokens = 1; tokens < 600; ++tokens)
    EXPECT_LE(layer.workspace_bytes(tokens), layer.workspace_bytes(tokens + 1)) << tokens;
}

// Not those of the other CPU backends, which a layer of this machine may have too.
TEST(CpuTilesRules, NameTheFormsThatTilesTake) {
  const LayerSpec spec =
      test::spec_of(test::scaled_scheme(DType::nf4, DType::f16, {.rows = 1, .cols = 32}), 64, 64);
  const auto refused = [&](const char* backend) {
    const auto forced = select_backend(test::problem_of(spec, 1, 1), *describe_device("cpu:amx"),
                                       {.backend = backend});
    return forced ? std::string() : forced.error().what;
  };
  using ::testing::HasSubstr;
  for (const char* which : {"gate and up", "down"}) {
    const std::string forms = std::string(which) + " in e2m1, u2, int4, int8 or e4m3 with scales";
    EXPECT_THAT(refused("cpu_amx"), HasSubstr(forms));
  }
  EXPECT_THAT(refused("cpu_amx"), ::testing::Not(HasSubstr("f32")));
  EXPECT_THAT(refused("cpu_avx512"), HasSubstr("down in bf16, f16, f32"));
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
