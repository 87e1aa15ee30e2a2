// SPDX-License-Identifier: Apache-2.0
// The names under which a scale that multiplies the codes stands beside them.
#pragma once

#include <string_view>
#include <vector>

#include "fewbit/scheme.hpp"

namespace fewbit {

// "weight_scale_inv", "weight_scale", "scale" …: those of the module's parts, in order of the
// list. All of them multiply, also those that are named an inverse.
std::vector<std::string_view> scale_parts(const Module& module);

}  // namespace fewbit
