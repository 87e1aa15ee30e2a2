// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <string>

namespace fewbit {

// A float for a message. Every NaN is "NaN": its sign says nothing.
inline std::string number_text(float value) {
  return std::isnan(value) ? std::string("NaN") : fmt::format("{}", value);
}

}  // namespace fewbit
