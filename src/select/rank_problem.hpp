// SPDX-License-Identifier: Apache-2.0
// A layer spread over ranks: what one rank has, and which numbers of ranks a backend takes.
#pragma once

#include <span>
#include <vector>

#include "fewbit/selection.hpp"
#include "select/backend.hpp"

namespace fewbit {

// The share of a rank when sizes are cut evenly, as engines do: intermediate_size / tensor,
// num_experts / expert. Errors invalid_argument: sizes that do not divide, with those that do.
Result<MoeProblem> rank_problem(const MoeProblem& whole, const Parallel& parallel);

struct RankVerdict {
  int ranks = 1;
  std::vector<Refusal> refusals;  // empty: legal
};
struct LegalSplits {
  std::vector<RankVerdict> tensor;
  std::vector<RankVerdict> expert;
};
// Backends that run here take whole groups dealt unevenly, those of engines even shares only. With
// act-order in groups any columns may go to any rank, and every rank holds all scales.
LegalSplits legal_splits(const Backend& backend, const MoeProblem& whole, const DeviceInfo& device,
                         std::span<const int> ranks);

}  // namespace fewbit
