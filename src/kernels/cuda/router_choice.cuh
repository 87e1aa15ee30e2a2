// SPDX-License-Identifier: Apache-2.0
// One token's experts by one warp: lane l has experts l, l + 32 … in registers.
#pragma once

#include <climits>

#include "kernels/cuda/router.hpp"
#include "moe/activation.hpp"

namespace fewbit::cuda {

inline constexpr unsigned all_lanes = 0xFFFFFFFFU;
inline constexpr int nobody = INT_MAX;

// Doubles as integers of the same order, above 0. Both zeros are one number.
__device__ __forceinline__ std::uint64_t key_of(double value) {
  const auto bits = static_cast<std::uint64_t>(__double_as_longlong(value + 0.0));
  return bits >> 63 != 0 ? ~bits : bits | std::uint64_t{1} << 63;
}
__device__ __forceinline__ double value_of(std::uint64_t key) {
  const std::uint64_t bits = key >> 63 != 0 ? key & ~(std::uint64_t{1} << 63) : ~key;
  return __longlong_as_double(static_cast<long long>(bits));
}

struct Best {
  std::uint64_t key;  // 0: there is none
  int at;
};

struct Range {
  int begin;
  int end;
};

// The largest key of a range but for one place, of equal ones the first; all lanes get it.
template <int values>
__device__ __forceinline__ Best best_of(const std::uint64_t (&keys)[values], Range range,
                                        int without = nobody) {
  const int lane = threadIdx.x % 32;
  std::uint64_t most = 0;
  int at = nobody;
#pragma unroll
  for (int v = 0; v < values; ++v) {
    const int e = v * 32 + lane;
    if (e >= range.begin && e < range.end && e != without && keys[v] > most) {
      most = keys[v];
      at = e;
    }
  }
  const auto high = static_cast<std::uint32_t>(most >> 32);
  const std::uint32_t best_high = __reduce_max_sync(all_lanes, high);
  const std::uint32_t low = high == best_high ? static_cast<std::uint32_t>(most) : 0;
  const std::uint32_t best_low = __reduce_max_sync(all_lanes, low);
  const std::uint64_t best = static_cast<std::uint64_t>(best_high) << 32 | best_low;
  return {best, __reduce_min_sync(all_lanes, most == best ? at : nobody)};
}

template <int values>
__device__ __forceinline__ void take(std::uint64_t (&keys)[values], int at) {
#pragma unroll
  for (int v = 0; v < values; ++v) {
    if (v * 32 + static_cast<int>(threadIdx.x % 32) == at) keys[v] = 0;
  }
}

__device__ __forceinline__ double sum_of_lanes(double value) {
#pragma unroll
  for (int d = 16; d > 0; d /= 2) value += __shfl_xor_sync(all_lanes, value, d);
  return value;
}

// What a softmax needs of all logits of a token; of other scores nothing.
struct SoftmaxSums {
  double largest;
  double sum;
};

__device__ __forceinline__ double score_of(RouterScore score, double x, const SoftmaxSums& sums) {
  if (score == RouterScore::sigmoid) return sigmoid(x);
  if (score == RouterScore::sqrt_softplus) return sqrt_softplus(x);
  return exp(x - sums.largest) / sums.sum;
}

// Leaves only keys of the groups with the best scores: the two largest choices together where a
// bias chooses, else the largest.
template <int values>
__device__ __forceinline__ void close_groups(const RouterArgs& router,
                                             std::uint64_t (&keys)[values]) {
  const int lane = threadIdx.x % 32;
  const int size = router.experts / router.groups;
  std::uint64_t groups[1] = {};
  for (int g = 0; g < router.groups; ++g) {
    const Range range = {g * size, (g + 1) * size};
    const Best first = best_of(keys, range);
    double score = value_of(first.key);
    if (router.bias != nullptr && size > 1) {
      score += value_of(best_of(keys, range, first.at).key);
    }
    if (lane == g) groups[0] = key_of(score);
  }
  unsigned open = 0;
  for (int i = 0; i < router.top_groups; ++i) {
    const Best best = best_of(groups, {0, router.groups});
    take(groups, best.at);
#pragma unroll
    for (int v = 0; v < values; ++v) {
      const int e = v * 32 + lane;
      if (e >= best.at * size && e < (best.at + 1) * size) open |= 1U << v;
    }
  }
#pragma unroll
  for (int v = 0; v < values; ++v) {
    if ((open >> v & 1U) == 0) keys[v] = 0;
  }
}

// Keys of a token's logits. Returns the first expert whose logit has no order, router_all_masked
// where a softmax is missing, or nobody.
template <int values>
__device__ __forceinline__ int load_logits(const RouterArgs& router, const float* row,
                                           std::uint64_t (&keys)[values]) {
  const int lane = threadIdx.x % 32;
  int first = nobody;
  bool finite = false;
#pragma unroll
  for (int v = 0; v < values; ++v) {
    const int e = v * 32 + lane;
    keys[v] = 0;
    if (e >= router.experts) continue;
    const float logit = row[e];
    keys[v] = key_of(logit);
    if (isnan(logit) || logit == INFINITY) first = min(first, e);
    finite = finite || isfinite(logit);
  }
  first = __reduce_min_sync(all_lanes, first);
  const bool any = __any_sync(all_lanes, finite) != 0;
  if (first == nobody && router.score == RouterScore::softmax && !any) return router_all_masked;
  return first;
}

// From keys of logits to keys of what chooses; returns the sums of a softmax.
template <int values>
__device__ __forceinline__ SoftmaxSums make_choices(const RouterArgs& router,
                                                    std::uint64_t (&keys)[values]) {
  const int lane = threadIdx.x % 32;
  SoftmaxSums sums = {0, 1};
  if (router.score == RouterScore::softmax) {
    sums.largest = value_of(best_of(keys, {0, router.experts}).key);
    double sum = 0;
#pragma unroll
    for (int v = 0; v < values; ++v) {
      if (v * 32 + lane < router.experts) sum += exp(value_of(keys[v]) - sums.largest);
    }
    sums.sum = sum_of_lanes(sum);
  }
  if (router.bias != nullptr) {
#pragma unroll
    for (int v = 0; v < values; ++v) {
      const int e = v * 32 + lane;
      if (e >= router.experts) continue;
      keys[v] =
          key_of(score_of(router.score, value_of(keys[v]), sums) + double{__ldg(router.bias + e)});
    }
  }
  return sums;
}

// All lanes of the warp.
template <int values>
__device__ __forceinline__ void route_token(const RouterArgs& router, int token) {
  const int lane = threadIdx.x % 32;
  const float* row = router.logits + static_cast<long long>(token) * router.experts;
  int id = lane;  // of slot `lane`
  float weight = NAN;
  std::uint64_t keys[values];
  if (const int fault = load_logits(router, row, keys); fault != nobody) {
    if (lane == 0) atomicMax(&router.state->fault, router_fault(token, fault));
  } else {
    const SoftmaxSums sums = make_choices(router, keys);
    if (router.top_groups < router.groups) close_groups(router, keys);
    for (int j = 0; j < router.top_k; ++j) {
      const Best best = best_of(keys, {0, router.experts});
      take(keys, best.at);
      if (lane == j) id = best.at;
    }
    const double score = lane < router.top_k ? score_of(router.score, row[id], sums) : 0;
    double sum = 0;  // in the order of the slots
    for (int j = 0; j < router.top_k; ++j) sum += __shfl_sync(all_lanes, score, j);
    // All chosen scores 0 (masked experts): the weights stay 0.
    const double divisor = router.renormalize && sum > 0 ? sum : 1.0;
    weight = static_cast<float>(score / divisor * double{router.scaling});
  }
  if (lane < router.top_k) {
    const long long slot = static_cast<long long>(token) * router.top_k + lane;
    router.ids[slot] = id;
    router.weights[slot] = weight;
  }
}

}  // namespace fewbit::cuda
