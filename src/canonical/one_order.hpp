// SPDX-License-Identifier: Apache-2.0
// One act-order for gate and up.
#pragma once

#include <algorithm>

#include "fewbit/quantized.hpp"

namespace fewbit {

// Whether gate and up both have act-order, but not the same group for every column.
inline bool keeps_two_orders(const ExpertWeights& expert) {
  if (!expert.gate || expert.gate->g_idx.empty() || expert.up.g_idx.empty()) return false;
  return !std::ranges::equal(expert.gate->g_idx.view.bytes, expert.up.g_idx.view.bytes);
}

}  // namespace fewbit
