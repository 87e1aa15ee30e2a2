// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace fewbit {

// n rows (out_features), k columns (in_features, or groups of them for scales).
struct Dims {
  std::int64_t n = 0;
  std::int64_t k = 0;
  friend constexpr bool operator==(const Dims&, const Dims&) = default;
};

}  // namespace fewbit
