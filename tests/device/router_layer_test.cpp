// SPDX-License-Identifier: Apache-2.0
// Layers of the backend cuda_moe with a router beside their experts. Needs a GPU; skipped where
// there is none.
#include <gtest/gtest.h>

#include "device/backend_case.hpp"
#include "fewbit/moe.hpp"

namespace fewbit::cuda {
namespace {

constexpr std::int64_t routed_experts = 6;  // more than are here, where there is a map

// The routes of a layer that a router with a bias and groups chooses from logits.
struct RoutedCase {
  RandomLayer layer;
  MoeProblem problem;
  MoeRouter router;
  std::vector<float> logits;
};
RoutedCase routed_case(const Case& c, const MoeWeights& weights) {
  RoutedCase r{.layer = layer_of(c), .problem = problem_of(c, weights), .router = {}, .logits = {}};
  const std::int64_t experts = c.map ? routed_experts : r.layer.shape.experts;
  r.problem.routed_experts = experts;
  r.layer.rule = rule_of(r.problem);
  r.router.params = {.score = c.map ? Score::sigmoid : Score::softmax,
                     .top_k = 2,
                     .num_groups = c.map ? 3 : 1,
                     .top_groups = c.map ? 2 : 1,
                     .scaling = 1.5F};
  std::uint64_t seed = 77;
  const auto draw = [&] { return static_cast<float>(next_random(seed) >> 40) / 4194304.0F - 2; };
  for (std::int64_t i = 0; i < c.tokens * experts; ++i) r.logits.push_back(draw());
  for (std::int64_t e = 0; c.map && e < experts; ++e) r.router.bias.push_back(draw() / 8);
  EXPECT_TRUE(route(r.router.params, c.tokens, experts, r.logits, r.router.bias, r.layer.ids,
                    r.layer.weights));
  return r;
}

// The same bits as with the routes that route() chooses, which the test above checks.
TEST_F(CudaBackendTest, ItsRouterChoosesAsTheHostsDoes) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const MoeWeights weights = weights_of(layer_of(c));
    const RoutedCase r = routed_case(c, weights);
    Result<MoeLayer> moe = prepare(r.problem, weights);
    ASSERT_OK(moe);
    const auto given = run(*moe, r.layer);
    ASSERT_OK(given);
    ASSERT_OK(moe->add_router(r.router));
    const auto routed = run_routed(*moe, r.layer, r.logits);
    ASSERT_OK(routed);
    EXPECT_EQ(*routed, *given);
    const auto on_card = run_on_card(*moe, r.layer, r.logits);
    ASSERT_OK(on_card);
    EXPECT_EQ(*on_card, *given);
    const auto still_given = run(*moe, r.layer);
    ASSERT_OK(still_given);
    EXPECT_EQ(*still_given, *given);
  }
}

// Logits by products on the card: the experts of exact logits, which lie far enough apart.
TEST_F(CudaBackendTest, ItsRouterProjectsHiddenStates) {
  for (const std::size_t number : {0U, 1U, 3U, 13U}) {
    const Case& c = cases[number];
    SCOPED_TRACE(c.name);
    const MoeWeights weights = weights_of(layer_of(c));
    RoutedCase r = routed_case(c, weights);
    const std::int64_t experts = r.problem.routed_experts;
    const std::int64_t hidden = r.problem.hidden_size;
    std::vector<float> matrix;
    std::uint64_t seed = 99;
    for (std::int64_t i = 0; i < experts * hidden; ++i) {
      matrix.push_back(static_cast<float>(next_random(seed) >> 40) / (64 * 4194304.0F) - 0.03F);
    }
    r.router.projection =
        make_plain(experts, hidden,
                   tensor_of(DType::f32, {experts, hidden},
                             {reinterpret_cast<const std::uint8_t*>(matrix.data()),
                              matrix.size() * sizeof(float)}))
            .value();
    for (std::int64_t i = 0; i < c.tokens * experts; ++i) {
      double sum = 0;
      for (std::int64_t k = 0; k < hidden; ++k) {
        sum += double{bf16_to_f32(r.layer.x[static_cast<std::size_t>(i / experts * hidden + k)])} *
               double{matrix[static_cast<std::size_t>(i % experts * hidden + k)]};
      }
      r.logits[static_cast<std::size_t>(i)] = static_cast<float>(sum);
    }
    ASSERT_OK(route(r.router.params, c.tokens, experts, r.logits, r.router.bias, r.layer.ids,
                    r.layer.weights));
    Result<MoeLayer> moe = prepare(r.problem, weights);
    ASSERT_OK(moe);
    ASSERT_OK(moe->add_router(r.router));
    const auto out = run_routed(*moe, r.layer, {});
    ASSERT_OK(out);
    expect_exact_rows(r.layer, *out);
  }
}

TEST_F(CudaBackendTest, ItsRouterRefusesLogitsWithoutAnOrder) {
  const Case& c = cases[1];
  const MoeWeights weights = weights_of(layer_of(c));
  RoutedCase r = routed_case(c, weights);
  Result<MoeLayer> moe = prepare(r.problem, weights);
  ASSERT_OK(moe);
  ASSERT_OK(moe->add_router(r.router));
  r.logits[7 * 4 + 2] = std::nanf("");
  const auto on_host = run_routed(*moe, r.layer, r.logits);
  ASSERT_FALSE(on_host);
  EXPECT_NE(on_host.error().message().find("token 7, expert 2"), std::string::npos)
      << on_host.error().message();
  const auto on_card = run_on_card(*moe, r.layer, r.logits);
  ASSERT_OK(on_card);
  const auto hidden = static_cast<std::size_t>(r.problem.hidden_size);
  for (std::size_t i = 0; i < on_card->size(); ++i) {
    ASSERT_EQ(std::isnan(bf16_to_f32((*on_card)[i])), i / hidden == 7) << "element " << i;
  }
  MoeRouter wide = r.router;
  wide.params.num_groups = 4;
  wide.params.top_groups = 1;
  EXPECT_FALSE(moe->add_router(wide));
}

}  // namespace
}  // namespace fewbit::cuda
