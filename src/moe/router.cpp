// SPDX-License-Identifier: Apache-2.0
#include "moe/router.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/number_text.hpp"
#include "fewbit/moe.hpp"
#include "moe/activation.hpp"

namespace fewbit {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

Error bad(std::string what) { return Error{ErrorCode::invalid_argument, std::move(what), "route"}; }

// elements == rows * cols, without forming the product.
bool holds(std::size_t elements, std::int64_t rows, std::int64_t cols) {
  const auto r = static_cast<std::size_t>(rows);
  const auto c = static_cast<std::size_t>(cols);
  return elements % c == 0 && elements / c == r;
}

Result<void> check_params(const RouterParams& params, std::int64_t experts) {
  if (experts < 1 || experts > std::numeric_limits<std::int32_t>::max()) {
    return bad(fmt::format("{} experts, expected 1 to 2^31 - 1", experts));
  }
  if (params.top_k < 1 || params.top_k > experts) {
    return bad(fmt::format("top_k {}, expected 1 to {} (experts)", params.top_k, experts));
  }
  if (params.num_groups < 1 || experts % params.num_groups != 0) {
    return bad(fmt::format("{} experts do not divide into {} groups", experts, params.num_groups));
  }
  if (params.top_groups < 1 || params.top_groups > params.num_groups) {
    return bad(fmt::format("top_groups {}, expected 1 to {} (num_groups)", params.top_groups,
                           params.num_groups));
  }
  const std::int64_t candidates = experts / params.num_groups * params.top_groups;
  if (params.top_k > candidates) {
    return bad(fmt::format("top_k {} of {} groups of {} experts: only {} candidates", params.top_k,
                           params.top_groups, experts / params.num_groups, candidates));
  }
  if (!std::isfinite(params.scaling)) return bad(fmt::format("scaling {}", params.scaling));
  return {};
}

Result<void> check_bias(std::span<const float> bias, std::int64_t experts) {
  if (!bias.empty() && std::ssize(bias) != experts) {
    return bad(fmt::format("bias holds {} elements, expected {} (experts)", bias.size(), experts));
  }
  for (std::size_t e = 0; e < bias.size(); ++e) {
    if (!std::isfinite(bias[e])) {
      return bad(fmt::format("bias of expert {} is {}, expected a finite number", e,
                             number_text(bias[e])));
    }
  }
  return {};
}

struct Sizes {
  std::size_t logits, ids, weights;
};

Result<void> check_sizes(int top_k, std::int64_t tokens, std::int64_t experts, Sizes sizes) {
  if (tokens < 0) return bad(fmt::format("{} tokens", tokens));
  if (!holds(sizes.logits, tokens, experts)) {
    return bad(fmt::format("logits hold {} elements, expected {} tokens * {} experts", sizes.logits,
                           tokens, experts));
  }
  if (!holds(sizes.ids, tokens, top_k)) {
    return bad(fmt::format("ids hold {} elements, expected {} tokens * top_k {}", sizes.ids, tokens,
                           top_k));
  }
  if (!holds(sizes.weights, tokens, top_k)) {
    return bad(fmt::format("weights hold {} elements, expected {} tokens * top_k {}", sizes.weights,
                           tokens, top_k));
  }
  return {};
}

// A NaN would make the order of experts meaningless, +infinity the softmax; -infinity is a mask.
Result<void> check_logits(Score score, std::int64_t token, std::span<const float> logits) {
  bool finite = false;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    if (std::isnan(logits[e]) || logits[e] == std::numeric_limits<float>::infinity()) {
      return bad(fmt::format("logit of token {}, expert {} is {}, expected a number below infinity",
                             token, e, number_text(logits[e])));
    }
    finite = finite || std::isfinite(logits[e]);
  }
  if (score == Score::softmax && !finite) {
    return bad(fmt::format("all {} logits of token {} are -inf: no softmax", logits.size(), token));
  }
  return {};
}

// Keeps `best` (indices into values) in falling order of values, ties to the lower index, when
// candidates come in rising order.
template <class Index>
void insert_best(std::span<const double> values, std::span<Index> best, std::size_t& filled,
                 std::size_t candidate) {
  std::size_t place = filled;
  while (place > 0 && values[static_cast<std::size_t>(best[place - 1])] < values[candidate]) {
    --place;
  }
  if (place == best.size()) return;
  if (filled < best.size()) ++filled;
  for (std::size_t i = filled - 1; i > place; --i) best[i] = best[i - 1];
  best[place] = static_cast<Index>(candidate);
}

// Routes one token at a time; holds the scratch that all tokens share.
class TokenRouter {
 public:
  TokenRouter(const RouterParams& params, std::int64_t experts, std::span<const float> bias)
      : params_(params),
        bias_(bias),
        scores_(static_cast<std::size_t>(experts)),
        choice_(static_cast<std::size_t>(experts)),
        group_scores_(static_cast<std::size_t>(params.num_groups)),
        groups_(static_cast<std::size_t>(params.top_groups)) {}

  void route(std::span<const float> logits, std::span<std::int32_t> ids, std::span<float> weights) {
    router_scores(params_.score, logits, scores_);
    // Every score function rises strictly, so without a bias the logits choose: no ties by
    // underflow or saturation.
    for (std::size_t e = 0; e < choice_.size(); ++e) {
      choice_[e] = bias_.empty() ? double{logits[e]} : scores_[e] + double{bias_[e]};
    }
    choose(ids);
    weigh(ids, weights);
  }

 private:
  void choose(std::span<std::int32_t> ids) {
    choose_groups();
    const std::size_t group_size = choice_.size() / group_scores_.size();
    std::size_t filled = 0;
    for (const std::size_t group : groups_) {
      for (std::size_t e = group * group_size; e < (group + 1) * group_size; ++e) {
        insert_best<std::int32_t>(choice_, ids, filled, e);
      }
    }
  }

  // The groups that may give experts, in rising order.
  void choose_groups() {
    const std::size_t group_size = choice_.size() / group_scores_.size();
    const std::span<const double> choice(choice_);
    for (std::size_t g = 0; g < group_scores_.size(); ++g) {
      group_scores_[g] = group_score(choice.subspan(g * group_size, group_size));
    }
    std::size_t filled = 0;
    for (std::size_t g = 0; g < group_scores_.size(); ++g) {
      insert_best<std::size_t>(group_scores_, groups_, filled, g);
    }
    std::ranges::sort(groups_);
  }

  // With a bias the sum of the two largest, else the maximum.
  double group_score(std::span<const double> choice) const {
    double first = minus_infinity;
    double second = minus_infinity;
    for (const double value : choice) {
      if (value > first) {
        second = first;
        first = value;
      } else if (value > second) {
        second = value;
      }
    }
    return bias_.empty() || choice.size() < 2 ? first : first + second;
  }

  void weigh(std::span<const std::int32_t> ids, std::span<float> weights) const {
    double sum = 0;
    for (const std::int32_t id : ids) sum += scores_[static_cast<std::size_t>(id)];
    // All chosen scores 0 (masked experts): the weights stay 0.
    const double divisor = params_.renormalize && sum > 0 ? sum : 1.0;
    for (std::size_t k = 0; k < ids.size(); ++k) {
      const double score = scores_[static_cast<std::size_t>(ids[k])];
      weights[k] = static_cast<float>(score / divisor * double{params_.scaling});
    }
  }

  const RouterParams& params_;
  std::span<const float> bias_;
  std::vector<double> scores_;
  std::vector<double> choice_;
  std::vector<double> group_scores_;
  std::vector<std::size_t> groups_;
};

}  // namespace

Result<void> check_router(const RouterParams& params, std::int64_t experts,
                          std::span<const float> bias) {
  FEWBIT_TRY(check_params(params, experts));
  return check_bias(bias, experts);
}

void router_scores(Score score, std::span<const float> logits, std::span<double> scores) {
  switch (score) {
    case Score::softmax: {
      const double largest = *std::ranges::max_element(logits);
      double sum = 0;
      for (std::size_t e = 0; e < logits.size(); ++e) {
        scores[e] = std::exp(double{logits[e]} - largest);
        sum += scores[e];
      }
      for (double& value : scores) value /= sum;
      return;
    }
    case Score::sigmoid:
      std::ranges::transform(logits, scores.begin(), [](float x) { return sigmoid(double{x}); });
      return;
    case Score::sqrt_softplus:
      std::ranges::transform(logits, scores.begin(),
                             [](float x) { return sqrt_softplus(double{x}); });
      return;
  }
}

Result<void> route(const RouterParams& params, std::int64_t tokens, std::int64_t experts,
                   std::span<const float> logits, std::span<const float> bias,
                   std::span<std::int32_t> ids, std::span<float> weights) {
  FEWBIT_TRY(check_router(params, experts, bias));
  FEWBIT_TRY(check_sizes(params.top_k, tokens, experts,
                         {.logits = logits.size(), .ids = ids.size(), .weights = weights.size()}));
  if (tokens == 0) return {};
  TokenRouter router(params, experts, bias);
  const auto width = static_cast<std::size_t>(experts);
  const auto top_k = static_cast<std::size_t>(params.top_k);
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    const auto row = logits.subspan(t * width, width);
    FEWBIT_TRY(check_logits(params.score, static_cast<std::int64_t>(t), row));
    router.route(row, ids.subspan(t * top_k, top_k), weights.subspan(t * top_k, top_k));
  }
  return {};
}

}  // namespace fewbit
