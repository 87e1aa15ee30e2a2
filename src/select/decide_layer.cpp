// SPDX-License-Identifier: Apache-2.0
#include "select/decide_layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "select/select.hpp"

namespace fewbit {
namespace {

// No number of ranks changes what the whole layer is refused for, but for its sizes.
bool ranks_may_help(const Backend& backend, const MoeProblem& whole, const DeviceInfo& device) {
  return std::ranges::all_of(refusals_of(backend, whole, device), [](const Refusal& refusal) {
    return refusal.reason == Reason::shape;
  });
}

void add_legal(const Backend& backend, const MoeProblem& whole, const DeviceInfo& device,
               std::set<int>& legal) {
  const std::vector<int> ranks = examined_ranks();
  for (const RankVerdict& verdict : legal_splits(backend, whole, device, ranks).tensor) {
    if (verdict.refusals.empty()) legal.insert(verdict.ranks);
  }
}

std::string legal_text(const std::string& who, const std::set<int>& legal) {
  if (legal.empty()) {
    return fmt::format("; {} takes no number of tensor ranks, 1 to {}", who, most_ranks);
  }
  const std::vector<int> ranks(legal.begin(), legal.end());
  return fmt::format("; {} takes {} tensor ranks", who, ranks_text(ranks));
}

// Of the forced backend, or of any where ranks are what is in the way.
std::string legal_ranks_of(const MoeProblem& whole, const Parallel& parallel,
                           const DeviceInfo& device, const Selection& selection,
                           const SelectOptions& options) {
  const Backend* forced = find_backend(options.backend);
  std::set<int> legal;
  if (forced != nullptr) {
    if (forced->engine != options.engine || !ranks_may_help(*forced, whole, device)) return "";
    add_legal(*forced, whole, device, legal);
    return legal_text(forced->name, legal);
  }
  if (!options.backend.empty() || selection.forced || parallel.tensor == 1) return "";
  bool any = false;
  for (const Candidate& candidate : selection.candidates) {
    const Backend* backend = find_backend(candidate.backend);
    if (!candidate.only_forced.empty() || !ranks_may_help(*backend, whole, device)) continue;
    any = true;
    add_legal(*backend, whole, device, legal);
  }
  return any && !legal.empty() ? legal_text("one of them", legal) : "";
}

}  // namespace

std::string LayerDecision::why_unprepared() const {
  if (!of_model.empty()) return of_model;
  const Candidate* of = find_candidate(selection, selection.chosen);
  return of == nullptr ? "" : of->unprepared;
}

Result<LayerDecision> decide_layer(const MoeProblem& whole, const Parallel& parallel,
                                   const DeviceInfo& device, const SelectOptions& options) {
  LayerDecision out;
  FEWBIT_TRY(out.selection, examine_spread(whole, parallel, device, options.engine));
  const auto choice = choose_backend(out.selection, whole, options);
  if (choice) {
    out.selection = *choice;
    out.backend = find_backend(choice->chosen);
    out.unit = spread_of(*out.backend, whole, device, parallel).unit;
  } else {
    out.legal_ranks = legal_ranks_of(whole, parallel, device, out.selection, options);
    out.refused = choice.error();
    out.refused->what += out.legal_ranks;
  }
  const Dealing dealing = dealing_of(options.engine, whole);
  const std::int64_t unit = choice ? out.unit : 0;
  FEWBIT_TRY(out.share, rank_problem(whole, parallel, dealing, unit));
  FEWBIT_TRY(out.shares, rank_shares(whole, parallel, dealing, unit));
  for (Candidate& candidate : out.selection.candidates) {
    // The table was made with the smallest unit.
    if (candidate.backend == out.selection.chosen) {
      candidate.unprepared = out.backend->why_unprepared(out.share);
    }
  }
  return out;
}

}  // namespace fewbit
