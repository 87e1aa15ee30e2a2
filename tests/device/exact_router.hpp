// SPDX-License-Identifier: Apache-2.0
// The rules of route() in double, written for reading, and logits to route.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "device/random_layer.hpp"
#include "fewbit/moe.hpp"

namespace fewbit::cuda {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

struct Rows {
  std::int64_t tokens = 0;
  std::int64_t experts = 0;
  std::vector<float> logits;
  std::vector<float> bias;  // or none
};
struct Routes {
  std::vector<std::int32_t> ids;
  std::vector<double> weights;
};

inline double score_of(Score score, double x, const std::vector<double>& logits) {
  if (score == Score::sigmoid) return 1 / (1 + std::exp(-x));
  if (score == Score::sqrt_softplus) return std::sqrt(std::log1p(std::exp(x)));
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const double l : logits) sum += std::exp(l - largest);
  return std::exp(x - largest) / sum;
}

// Indices of the largest values, ties to the lower.
inline std::vector<std::size_t> best(const std::vector<double>& values, std::size_t count) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return values[a] > values[b]; });
  order.resize(count);
  return order;
}

inline void route_exactly(const RouterParams& params, const Rows& rows, std::int64_t token,
                          Routes& routes) {
  const auto experts = static_cast<std::size_t>(rows.experts);
  const auto begin = rows.logits.begin() + token * rows.experts;
  const std::vector<double> logits(begin, begin + rows.experts);
  std::vector<double> scores;
  std::vector<double> choice;
  for (std::size_t e = 0; e < experts; ++e) {
    scores.push_back(score_of(params.score, logits[e], logits));
    choice.push_back(rows.bias.empty() ? logits[e] : scores[e] + double{rows.bias[e]});
  }
  const std::size_t size = experts / static_cast<std::size_t>(params.num_groups);
  std::vector<double> groups;
  for (std::size_t g = 0; g < experts / size; ++g) {
    std::vector<double> of_group(choice.begin() + static_cast<std::ptrdiff_t>(g * size),
                                 choice.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
    std::ranges::sort(of_group, std::greater{});
    groups.push_back(rows.bias.empty() || size < 2 ? of_group[0] : of_group[0] + of_group[1]);
  }
  // Experts of closed groups stand behind all others.
  std::vector<std::size_t> open = best(groups, static_cast<std::size_t>(params.top_groups));
  std::ranges::sort(open);
  std::vector<double> candidates;
  std::vector<std::size_t> names;
  for (const std::size_t g : open) {
    for (std::size_t e = g * size; e < (g + 1) * size; ++e) {
      candidates.push_back(choice[e]);
      names.push_back(e);
    }
  }
  double sum = 0;
  const auto chosen = best(candidates, static_cast<std::size_t>(params.top_k));
  for (const std::size_t i : chosen) sum += scores[names[i]];
  for (const std::size_t i : chosen) {
    routes.ids.push_back(static_cast<std::int32_t>(names[i]));
    routes.weights.push_back(scores[names[i]] / (params.renormalize && sum > 0 ? sum : 1) *
                             double{params.scaling});
  }
}

enum class Fill { numbers, ties, masked, saturated };

// ties: few different values, zeros of both signs among them.
inline float random_logit(Fill fill, std::uint64_t r) {
  const auto grid = static_cast<float>(static_cast<int>(r % 9) - 4);
  if (fill == Fill::ties) return grid == 0 && (r >> 32 & 1) != 0 ? -0.0F : grid / 4;
  if (fill == Fill::saturated) return 40 + grid;
  if (fill == Fill::masked && (r >> 32 & 3) != 0) return -infinity;
  return static_cast<float>(r >> 40) / float(1 << 22) - 2;
}

inline Rows random_rows(std::int64_t tokens, std::int64_t experts, bool bias, Fill fill) {
  std::uint64_t seed = static_cast<std::uint64_t>(tokens * 1000 + experts) + (bias ? 7 : 0);
  Rows rows{.tokens = tokens, .experts = experts, .logits = {}, .bias = {}};
  for (std::int64_t i = 0; i < tokens * experts; ++i) {
    rows.logits.push_back(random_logit(fill, next_random(seed)));
  }
  // A softmax needs one.
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (fill == Fill::masked) rows.logits[static_cast<std::size_t>(t * experts)] = 0.5F;
  }
  for (std::int64_t e = 0; bias && e < experts; ++e) {
    const std::uint64_t r = next_random(seed);
    rows.bias.push_back(fill == Fill::ties ? static_cast<float>(r % 3)
                                           : static_cast<float>(r >> 40) / float(1 << 25) - 0.25F);
  }
  return rows;
}

// Every score, with and without groups and renormalization.
inline const std::vector<RouterParams>& all_routers() {
  static const std::vector<RouterParams> routers = [] {
    std::vector<RouterParams> made;
    for (const Score score : {Score::softmax, Score::sigmoid, Score::sqrt_softplus}) {
      for (const bool renormalize : {false, true}) {
        made.push_back({.score = score, .top_k = 4, .renormalize = renormalize});
        made.push_back({.score = score,
                        .top_k = 4,
                        .renormalize = renormalize,
                        .num_groups = 4,
                        .top_groups = 2,
                        .scaling = 2.5F});
      }
    }
    return made;
  }();
  return routers;
}

}  // namespace fewbit::cuda
