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
// Sizes without any reason share one line.
std::string splits_text(const Splits& splits);
Json splits_json(const Splits& splits);

}  // namespace fewbit::cli
