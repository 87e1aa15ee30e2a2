// SPDX-License-Identifier: Apache-2.0
// What a machine can do moves while other programs run: it is measured again and again beside what
// is compared with it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bench/measure.hpp"

namespace fewbit::bench {

// Times each number of tokens of a prepared layer, with the limits measured before, between and
// after; ends early when options.stop says so. Errors: of `time`, LimitProbe, the device and
// options.limits.
Result<void> time_beside_limits(
    const DeviceInfo& device, const LayerBenchOptions& options, Executor& executor,
    LayerBench& bench, const std::function<Result<LayerTiming>(std::int64_t tokens)>& time);

// Why shares of the limits can't be trusted: one is above 1, or the limits moved by a quarter.
// Empty: nothing speaks against them.
std::string limit_note(const LayerBench& bench);

}  // namespace fewbit::bench
