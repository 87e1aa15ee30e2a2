// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>

#include "bench/measure.hpp"

namespace fewbit::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct CallTimes {
  double seconds = 0;  // median
  int calls = 0;       // 0: stopped before the first
};
// Calls until their time is used up, at least five; the first `warm_up` of them are not counted,
// and taken off it. call: runs once and tells the seconds that it took.
Result<CallTimes> time_calls(const LayerBenchOptions& options, int& warm_up,
                             const std::function<Result<double>()>& call);

}  // namespace fewbit::bench
