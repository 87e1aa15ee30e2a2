// SPDX-License-Identifier: Apache-2.0
// Dense layers among the lines of a file of shapes: name out_features in_features schemes.
#pragma once

#include <string>
#include <vector>

#include "bench/measure.hpp"

namespace fewbit::bench {

// Takes the lines of four words out of the text, leaving empty ones. Errors corrupt: line and what
// is wrong with it.
Result<std::vector<LayerShape>> take_linear_shapes(std::string& text, const std::string& where);

}  // namespace fewbit::bench
