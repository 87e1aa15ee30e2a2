// SPDX-License-Identifier: Apache-2.0
// Drawing of the next token.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "fewbit/model.hpp"

namespace fewbit {
namespace {

// splitmix64 (Steele, Lea and Flood 2014): integers only, so the same on every machine.
std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// Uniform in [0, 1), a multiple of 2^-53.
double next_uniform(std::uint64_t& state) {
  return static_cast<double>(next_random(state) >> 11) * 0x1p-53;
}

std::int32_t argmax(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Ids by falling logit, ties by rising id, only the first `count` in order.
std::vector<std::int32_t> best_ids(std::span<const float> logits, std::size_t count) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float left = logits[static_cast<std::size_t>(a)];
    const float right = logits[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count), ids.end(),
                    before);
  ids.resize(count);
  return ids;
}

// Unnormalized probabilities relative to the first of `ids`, which has the largest logit.
std::vector<double> weights_of(std::span<const float> logits, const std::vector<std::int32_t>& ids,
                               float temperature) {
  std::vector<double> weights(ids.size());
  const double best = logits[static_cast<std::size_t>(ids.front())];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double logit = logits[static_cast<std::size_t>(ids[i])];
    // Equal infinities weigh 1, not NaN.
    weights[i] = logit == best ? 1.0 : std::exp((logit - best) / double{temperature});
  }
  return weights;
}

}  // namespace

Sampler::Sampler(const SamplingParams& params) : params_(params), state_(params.seed) {}

Result<Sampler> Sampler::create(const SamplingParams& params) {
  const auto refuse = [](std::string what) {
    return Error{ErrorCode::invalid_argument, std::move(what), "sampling"};
  };
  if (!std::isfinite(params.temperature) || params.temperature < 0) {
    return refuse(fmt::format("temperature is {}, expected a finite number of at least 0",
                              params.temperature));
  }
  if (!(params.top_p > 0 && params.top_p <= 1)) {
    return refuse(fmt::format("top_p is {}, expected more than 0 and at most 1", params.top_p));
  }
  if (params.top_k < 0) {
    return refuse(fmt::format("top_k is {}, expected 0 or more", params.top_k));
  }
  return Sampler(params);
}

// Top-k, then the smallest set of the most probable tokens whose probability reaches top_p.
Result<std::int32_t> Sampler::sample(std::span<const float> logits) {
  if (logits.empty()) return Error{ErrorCode::invalid_argument, "no logits", "sampling"};
  const auto nan =
      std::find_if(logits.begin(), logits.end(), [](float x) { return std::isnan(x); });
  if (nan != logits.end()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("logit {} of {} is NaN", nan - logits.begin(), logits.size()),
                 "sampling"};
  }
  if (params_.temperature == 0) return argmax(logits);
  const std::size_t most = params_.top_k == 0
                               ? logits.size()
                               : std::min(static_cast<std::size_t>(params_.top_k), logits.size());
  const std::vector<std::int32_t> ids = best_ids(logits, most);
  const std::vector<double> weights = weights_of(logits, ids, params_.temperature);
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::size_t kept = weights.size();
  if (params_.top_p < 1) {
    const double enough = total * double{params_.top_p};
    double sum = 0;
    for (kept = 0; kept < weights.size() && sum < enough; ++kept) sum += weights[kept];
    total = sum;
  }
  const double target = next_uniform(state_) * total;
  double sum = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    sum += weights[i];
    if (target < sum) return ids[i];
  }
  // Rounding of the sums can leave the target just past the end.
  return ids[kept - 1];
}

}  // namespace fewbit
