// SPDX-License-Identifier: Apache-2.0
// How many ranks can share a model, as text and JSON.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/json.hpp"
#include "select/split_plan.hpp"

namespace fewbit::cli {

struct Splits {
  std::vector<SplitPlan> tensor;
  std::vector<SplitPlan> expert;
};

Splits plan_splits(const Checkpoint& checkpoint, const Identified& identified);
// Numbers of ranks with the same verdict share one line.
std::string splits_text(const Splits& splits);
// The verdict of one number of ranks; empty: 1, or not among the plans.
std::string split_line(const char* name, const std::vector<SplitPlan>& plans, int ranks);
Json splits_json(const Splits& splits);
// Numbers of ranks with one verdict share an entry that names the parts behind it; the sentences,
// which splits_json has for every number, only of those asked for.
Json verdicts_json(const Splits& splits, int tensor, int expert);

}  // namespace fewbit::cli
