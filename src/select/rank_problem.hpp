// SPDX-License-Identifier: Apache-2.0
// A layer spread over ranks: what one rank has, and which numbers of ranks a backend takes.
#pragma once

#include <span>
#include <vector>

#include "fewbit/selection.hpp"
#include "select/backend.hpp"
#include "select/split_plan.hpp"

namespace fewbit {

// How the loader of an engine deals the intermediate features of a layer: fewbit whole_units; vLLM
// and SGLang gpt-oss's MXFP4 padded_units; all the rest even.
Dealing dealing_of(Engine engine, const MoeProblem& whole);

// The share of the first rank, which is a largest one. `even`: intermediate_size / tensor,
// num_experts / expert; whether a group is cut is for backends to say. `whole_units`: groups,
// blocks and words stay whole and the first ranks may hold one more. `padded_units`: as many whole
// groups for every rank; experts evenly. Errors invalid_argument: sizes that can't be dealt, with
// the numbers of ranks that they can be dealt to.
// unit: features dealt together; 0: the smallest run that stays whole.
Result<MoeProblem> rank_problem(const MoeProblem& whole, const Parallel& parallel,
                                Dealing dealing = Dealing::even, std::int64_t unit = 0);

// How a backend has the features dealt, the way of feature_units that it refuses least of, and what
// it refuses of any rank's share, or that they can't be dealt. All ranks use one backend, one unit.
struct Spread {
  std::int64_t unit = 1;          // features dealt together
  std::vector<Refusal> refusals;  // empty: every rank can use it
};
Spread spread_of(const Backend& backend, const MoeProblem& whole, const DeviceInfo& device,
                 const Parallel& parallel);
// Units that the features may be dealt in for a backend, the smallest first: what stays together,
// and what the kernels here take at a time.
std::vector<std::int64_t> feature_units(const Backend& backend, const MoeProblem& whole,
                                        const Parallel& parallel);

// What each rank has, as explain says it.
struct RankShares {
  std::vector<std::int64_t> features;           // by tensor rank, of its own
  std::vector<std::int64_t> intermediate_size;  // the same with padding
  std::vector<std::int64_t> num_experts;        // by expert rank
};
// unit: as of rank_problem, whose errors these are.
Result<RankShares> rank_shares(const MoeProblem& whole, const Parallel& parallel, Dealing dealing,
                               std::int64_t unit = 0);

struct RankVerdict {
  int ranks = 1;
  std::vector<Refusal> refusals;  // empty: legal
};
struct LegalSplits {
  std::vector<RankVerdict> tensor;
  std::vector<RankVerdict> expert;
};
// Shares are those that dealing_of the backend's engine gives. With
// act-order in groups any columns may go to any rank, and every rank holds all scales.
LegalSplits legal_splits(const Backend& backend, const MoeProblem& whole, const DeviceInfo& device,
                         std::span<const int> ranks);

}  // namespace fewbit
