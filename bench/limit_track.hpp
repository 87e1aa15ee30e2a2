// SPDX-License-Identifier: Apache-2.0
// What a machine can do moves while other programs run: it is measured again and again beside what
// is compared with it.
#pragma once

#include <optional>
#include <string>

#include "bench/measure.hpp"

namespace fewbit::bench {

class LimitTrack {
 public:
  // Errors: of LimitProbe.
  static Result<LimitTrack> open(const DeviceInfo& device, const LayerBenchOptions& options,
                                 Executor& executor);
  // Adds a measurement to what the bench has seen. Errors: of the device, and of options.limits.
  Result<void> measure(LayerBench& bench);

 private:
  std::optional<LimitProbe> probe_;                 // of a CPU
  std::function<Result<MachineLimits>()> instead_;  // options.limits
};

// Why shares of the limits can't be trusted: one is above 1, or the limits moved by a quarter.
// Empty: nothing speaks against them.
std::string limit_note(const LayerBench& bench);

}  // namespace fewbit::bench
