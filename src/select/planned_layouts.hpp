// SPDX-License-Identifier: Apache-2.0
// Which of a backend's layouts a layer gets.
#pragma once

#include <string>

#include "select/backend.hpp"

namespace fewbit {

// "marlin_4bit, marlin_scales": those of the plan that preparation makes for such weights; where it
// makes none, all that the backend has. Of what a problem does not say (activations' scales,
// offsets) there is none.
std::string planned_layouts(const Backend& backend, const MoeProblem& share);

}  // namespace fewbit
