// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "bench/measure.hpp"
#include "bench/time_calls.hpp"
#include "core/aligned_buffer.hpp"
#include "kernels/cpu/machine_limits.hpp"

namespace fewbit::bench {
namespace {

constexpr std::int64_t read_bytes = std::int64_t{1} << 29;

struct Loops {
  FmaLoopFn* fma;
  ReadLoopFn* read;
  FmaLoopFn* tiles = nullptr;
};

Loops loops_of(IsaLevel level) {
#if defined(__x86_64__)
  if (level == IsaLevel::amx) return {fma_loop_avx512, read_loop_avx512, tile_loop_amx};
  if (level == IsaLevel::avx512) return {fma_loop_avx512, read_loop_avx512};
  if (level == IsaLevel::avx2) return {fma_loop_avx2, read_loop_avx2};
#elif defined(__aarch64__)
  if (level == IsaLevel::neon) return {fma_loop_neon, read_loop_neon};
#endif
  static_cast<void>(level);
  return {fma_loop_generic, read_loop_generic};
}

// A share of results, one cache line each, so that threads don't disturb each other.
struct alignas(64) Sink {
  float sum = 0;
  std::uint64_t bits = 0;
  std::int64_t flops = 0;
};

double flop_rate(FmaLoopFn* loop, std::int64_t loop_rounds, std::span<Sink> sinks,
                 Executor& executor, int rounds) {
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    parallel_for(executor, static_cast<int>(sinks.size()), [&](int i) {
      Sink& sink = sinks[static_cast<std::size_t>(i)];
      sink.flops = loop(loop_rounds, &sink.sum);
    });
    const double seconds = seconds_since(start);
    double flops = 0;
    for (const Sink& sink : sinks) flops += static_cast<double>(sink.flops);
    best = std::max(best, flops / seconds);
  }
  return best;
}

double read_rate(const Loops& loops, std::span<Sink> sinks, Executor& executor,
                 const std::byte* memory, int rounds) {
  const auto* data = reinterpret_cast<const std::uint8_t*>(memory);
  const std::int64_t part = read_bytes / std::ssize(sinks) / 256 * 256;
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto start = Clock::now();
    parallel_for(executor, static_cast<int>(sinks.size()), [&](int i) {
      sinks[static_cast<std::size_t>(i)].bits |= loops.read(data + i * part, part);
    });
    const double seconds = seconds_since(start);
    best = std::max(best, static_cast<double>(part * std::ssize(sinks)) / seconds);
  }
  return best;
}

}  // namespace

LimitProbe::LimitProbe(IsaLevel level, Executor& executor, AlignedBuffer memory)
    : level_(level), executor_(&executor), memory_(std::move(memory)) {}

Result<LimitProbe> LimitProbe::open(const DeviceInfo& device, Executor& executor) {
  FEWBIT_TRY(AlignedBuffer memory, AlignedBuffer::allocate(static_cast<std::uint64_t>(read_bytes)));
  std::memset(memory.data(), 1, memory.size());  // pages of its own, not the shared zero page
  return LimitProbe(device.isa, executor, std::move(memory));
}

MachineLimits LimitProbe::measure(int rounds) {
  std::vector<Sink> sinks(static_cast<std::size_t>(executor_->threads()));
  const Loops loops = loops_of(level_);
  return MachineLimits{
      .threads = executor_->threads(),
      .read_bytes_per_second = read_rate(loops, sinks, *executor_, memory_.data(), rounds),
      .fma_flops_per_second = flop_rate(loops.fma, 4'000'000, sinks, *executor_, rounds),
      .tile_flops_per_second =
          loops.tiles == nullptr ? 0 : flop_rate(loops.tiles, 400'000, sinks, *executor_, rounds),
  };
}

}  // namespace fewbit::bench
