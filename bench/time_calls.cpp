// SPDX-License-Identifier: Apache-2.0
#include "bench/time_calls.hpp"

#include <algorithm>
#include <vector>

namespace fewbit::bench {

Result<CallTimes> time_calls(const LayerBenchOptions& options, int& warm_up,
                             const std::function<Result<double>()>& call) {
  constexpr std::size_t least_calls = 5;
  const auto stops = [&] { return options.stop && options.stop(); };
  std::vector<double> seconds;
  for (double spent = 0; (spent < options.seconds || seconds.size() < least_calls) && !stops();) {
    FEWBIT_TRY(const double taken, call());
    if (warm_up > 0) {
      --warm_up;
      continue;
    }
    spent += taken;
    seconds.push_back(taken);
  }
  if (seconds.empty()) return CallTimes{};
  std::ranges::nth_element(seconds, seconds.begin() + std::ssize(seconds) / 2);
  return CallTimes{.seconds = seconds[seconds.size() / 2],
                   .calls = static_cast<int>(seconds.size())};
}

}  // namespace fewbit::bench
