// SPDX-License-Identifier: Apache-2.0
#include "bench/limit_track.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "bench/bench_device.hpp"
#include "core/counted.hpp"

namespace fewbit::bench {
namespace {

// Rounds that find a limit on a quiet machine, and those that look whether it is still so.
constexpr int first_rounds = 5;
constexpr int later_rounds = 2;
// A lower rate than this part of the best one was disturbed.
constexpr double still_the_same = 0.75;

struct Limit {
  double MachineLimits::*rate;
  double (LayerTiming::*share)(const MachineLimits&) const;
  const char* name;
  const char* unit;
  double in_unit;
};
constexpr std::array limits{
    Limit{&MachineLimits::read_bytes_per_second, &LayerTiming::of_read, "read", "GB/s", 1e-9},
    Limit{&MachineLimits::fma_flops_per_second, &LayerTiming::of_fma, "FMA", "TFLOP/s", 1e-12},
    Limit{&MachineLimits::tile_flops_per_second, &LayerTiming::of_tiles, "tiles", "TFLOP/s", 1e-12},
};

void add(const MachineLimits& seen, LayerBench& bench) {
  if (bench.limit_measurements++ == 0) {
    bench.limits = seen;
    bench.lowest = seen;
    return;
  }
  for (const Limit& limit : limits) {
    bench.limits.*limit.rate = std::max(bench.limits.*limit.rate, seen.*limit.rate);
    bench.lowest.*limit.rate = std::min(bench.lowest.*limit.rate, seen.*limit.rate);
  }
}

std::string moved_text(const LayerBench& bench) {
  std::string text;
  for (const Limit& limit : limits) {
    const double best = bench.limits.*limit.rate;
    const double lowest = bench.lowest.*limit.rate;
    if (lowest >= best * still_the_same) continue;
    text += fmt::format("{}{} {:.3g} to {:.3g} {}", text.empty() ? "" : ", ", limit.name,
                        lowest * limit.in_unit, best * limit.in_unit, limit.unit);
  }
  return text;
}

std::string above_text(const LayerBench& bench) {
  int above = 0;
  double largest = 0;
  for (const LayerTiming& timing : bench.timings) {
    for (const Limit& limit : limits) {
      const double share = (timing.*limit.share)(bench.limits);
      if (share > 1) ++above;
      largest = std::max(largest, share);
    }
  }
  if (above == 0) return "";
  return fmt::format("{} above 1, up to {:.3g}", counted(above, "share is", "shares are"), largest);
}

class LimitTrack {
 public:
  static Result<LimitTrack> open(const DeviceInfo& device, const LayerBenchOptions& options,
                                 Executor& executor);
  // Adds a measurement to what the bench has seen.
  Result<void> measure(LayerBench& bench);

 private:
  std::optional<LimitProbe> probe_;                 // of a CPU
  std::function<Result<MachineLimits>()> instead_;  // options.limits
};

Result<LimitTrack> LimitTrack::open(const DeviceInfo& device, const LayerBenchOptions& options,
                                    Executor& executor) {
  LimitTrack track;
  track.instead_ = options.limits;
  if (track.instead_ || device.kind == DeviceKind::cuda) return track;
  FEWBIT_TRY(LimitProbe probe, LimitProbe::open(device, executor));
  track.probe_ = std::move(probe);
  return track;
}

Result<void> LimitTrack::measure(LayerBench& bench) {
  MachineLimits seen;
  if (instead_) {
    FEWBIT_TRY(seen, instead_());
  } else if (probe_) {
    seen = probe_->measure(bench.limit_measurements == 0 ? first_rounds : later_rounds);
  } else {
    FEWBIT_TRY(seen, device_limits());
  }
  add(seen, bench);
  return {};
}

}  // namespace

Result<void> time_beside_limits(
    const DeviceInfo& device, const LayerBenchOptions& options, Executor& executor,
    LayerBench& bench, const std::function<Result<LayerTiming>(std::int64_t tokens)>& time) {
  const auto stops = [&] { return options.stop && options.stop(); };
  if (stops()) return {};
  FEWBIT_TRY(LimitTrack track, LimitTrack::open(device, options, executor));
  FEWBIT_TRY(track.measure(bench));
  for (const std::int64_t tokens : options.tokens) {
    FEWBIT_TRY(const LayerTiming timing, time(tokens));
    if (stops()) break;
    bench.timings.push_back(timing);
    FEWBIT_TRY(track.measure(bench));
  }
  return {};
}

std::string limit_note(const LayerBench& bench) {
  const std::string moved = moved_text(bench);
  const std::string above = above_text(bench);
  if (moved.empty() && above.empty()) return "";
  std::string text = moved.empty() ? "" : "the limits moved while they were measured, " + moved;
  if (!above.empty()) text += (text.empty() ? "" : "; ") + above;
  return text + ": the limits were disturbed, measure again on a quiet machine";
}

}  // namespace fewbit::bench
