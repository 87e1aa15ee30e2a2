// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "fewbit/executor.hpp"

namespace fewbit {

// Splits [0, count) into contiguous ranges, several for each thread so that uneven ones balance
// out, and calls fn(begin, end) for each on the executor. What fn does to an index must not depend
// on the range that holds it: the number of ranges follows the number of threads.
template <class Fn>
void parallel_ranges(Executor& executor, std::int64_t count, const Fn& fn) {
  constexpr std::int64_t ranges_per_thread = 8;
  const std::int64_t ranges = std::min(count, std::max(executor.threads(), 1) * ranges_per_thread);
  if (ranges <= 0) return;
  const std::int64_t whole = count / ranges;
  const std::int64_t longer = count % ranges;  // the first ones take one more
  parallel_for(executor, static_cast<int>(ranges), [&](int range) {
    const std::int64_t begin = range * whole + std::min<std::int64_t>(range, longer);
    fn(begin, begin + whole + (range < longer ? 1 : 0));
  });
}

}  // namespace fewbit
