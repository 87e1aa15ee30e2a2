// SPDX-License-Identifier: Apache-2.0
// The decision about one layer on all its ranks: explain shows it, check sums it up, prepare does
// it.
#pragma once

#include <optional>
#include <string>

#include "fewbit/selection.hpp"
#include "select/rank_problem.hpp"

namespace fewbit {

struct LayerDecision {
  Selection selection;               // the whole table, also where nothing is chosen
  const Backend* backend = nullptr;  // chosen for every rank; nullptr: refused tells why
  std::optional<Error> refused;      // as select_backend, and legal_ranks
  std::string legal_ranks;           // "; marlin takes 1, 2, 4 tensor ranks": what would do
  std::int64_t unit = 1;             // features dealt together
  MoeProblem share;                  // of the first rank, a largest one
  RankShares shares;                 // of all
  std::string of_model;              // why `prepare` takes no layer of this model; empty: it may

  // Why `prepare` writes nothing though the layer can be run; empty: it does.
  std::string why_unprepared() const;
};

// Errors invalid_argument: a problem that makes no sense, or (where: the layer with " tensor_ranks"
// or " expert_ranks") sizes that can't be dealt to so many ranks, with the legal numbers.
Result<LayerDecision> decide_layer(const MoeProblem& whole, const Parallel& parallel,
                                   const DeviceInfo& device, const SelectOptions& options);

}  // namespace fewbit
