// SPDX-License-Identifier: Apache-2.0
// How near each repacking comes to a plain copy: rounds of a copy and the repacking in turn, so
// that both see the same machine, and the median of their ratios. Bytes are those read and written.
//
//   bench_repack [--threads N] [--rounds N] [--isa NAME] [WORD in the name]
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "bench/repack_cases.hpp"
#include "bench/usage.hpp"
#include "core/aligned_buffer.hpp"
#include "layout/parallel_ranges.hpp"

namespace fewbit::bench {
namespace {

struct Options {
  int threads = 2;
  int rounds = 9;
  IsaLevel isa = IsaLevel::generic;
  std::string word;
};

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// By the clock, and by the processors' time of all threads, which others on the machine disturb
// less.
struct Times {
  double clock = 0;
  double cpu = 0;
};

template <class Fn>
Times times_of(const Fn& fn) {
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  fn();
  const std::chrono::duration<double> clock = std::chrono::steady_clock::now() - start;
  return {.clock = clock.count(), .cpu = cpu_seconds() - cpu_start};
}

// One memcpy a thread, which streams past the caches where the C library finds that faster.
class Copy {
 public:
  static Result<Copy> make() {
    Copy copy;
    FEWBIT_TRY(copy.from_, AlignedBuffer::allocate(bytes));
    FEWBIT_TRY(copy.to_, AlignedBuffer::allocate(bytes));
    std::memset(copy.from_.data(), 0x5a, bytes);
    std::memset(copy.to_.data(), 0, bytes);
    return copy;
  }
  Times run(Executor& executor) {
    const int threads = std::max(executor.threads(), 1);
    const std::size_t part = bytes / static_cast<std::size_t>(threads);
    return times_of([&] {
      parallel_for(executor, threads, [&](int i) {
        const std::size_t at = static_cast<std::size_t>(i) * part;
        std::memcpy(to_.data() + at, from_.data() + at, part);
      });
    });
  }
  static constexpr double moved_bytes = 2.0 * (1 << 26);

 private:
  static constexpr std::size_t bytes = std::size_t{1} << 26;
  AlignedBuffer from_;
  AlignedBuffer to_;
};

Result<void> measure(const RepackCase& one, int rounds, Copy& copy, Executor& executor) {
  std::vector<double> rates;
  std::vector<double> ratios;
  std::vector<double> cpu_ratios;
  const auto bytes = static_cast<double>(one.read_bytes + one.written_bytes);
  const double share = bytes / Copy::moved_bytes;
  FEWBIT_TRY(one.run(executor));
  for (int round = 0; round < rounds; ++round) {
    const Times before = copy.run(executor);
    Result<void> ran;
    const Times times = times_of([&] { ran = one.run(executor); });
    FEWBIT_TRY(std::move(ran));
    const Times after = copy.run(executor);
    rates.push_back(bytes / times.clock);
    ratios.push_back(share * (before.clock + after.clock) / 2 / times.clock);
    cpu_ratios.push_back(share * (before.cpu + after.cpu) / 2 / times.cpu);
  }
  fmt::print("{:<32} {:>8.2f} {:>8.2f} {:>8.2f}\n", one.name, median(rates) / 1e9, median(ratios),
             median(cpu_ratios));
  std::fflush(stdout);
  return {};
}

Result<void> run(const Options& options) {
  FEWBIT_TRY(const auto executor, make_thread_pool(options.threads));
  FEWBIT_TRY(const std::vector<RepackCase> cases, repack_cases(options.isa));
  FEWBIT_TRY(Copy copy, Copy::make());
  std::vector<double> rates;
  for (int round = 0; round < options.rounds; ++round) {
    rates.push_back(Copy::moved_bytes / copy.run(*executor).clock);
  }
  fmt::print("{} threads, {}, copy {:.2f} GB/s read and written\n", executor->threads(),
             isa_name(options.isa), median(rates) / 1e9);
  fmt::print("{:<32} {:>8} {:>8} {:>8}\n", "repacking", "GB/s", "of copy", "of CPU");
  for (const RepackCase& one : cases) {
    if (one.name.find(options.word) == std::string::npos) continue;
    FEWBIT_TRY(measure(one, options.rounds, copy, *executor));
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  fmt::print("peak memory {} MiB\n", usage.ru_maxrss / 1024);
  return {};
}

Result<Options> parse(int argc, char** argv) {
  Options options;
  FEWBIT_TRY(const DeviceInfo device, detect_cpu());
  options.isa = device.isa;
  for (int i = 1; i < argc; ++i) {
    const std::string_view name = argv[i];
    if (!name.starts_with("--")) {
      options.word = name;
      continue;
    }
    ++i;  // has a value: ends_here() has seen to it
    if (name == "--threads") options.threads = std::atoi(argv[i]);
    if (name == "--rounds") options.rounds = std::max(std::atoi(argv[i]), 1);
    if (name == "--isa") {
      FEWBIT_TRY(options.isa, isa_from_name(argv[i]));
    }
  }
  return options;
}

}  // namespace
}  // namespace fewbit::bench

int main(int argc, char** argv) {
  const fewbit::bench::Usage usage{
      .text = "bench_repack [--threads N] [--rounds N] [--isa NAME] [WORD]     layouts with WORD",
      .options = {"--threads", "--rounds", "--isa"},
      .most_words = 1};
  if (const auto status = fewbit::bench::ends_here(argc, argv, usage)) return *status;
  const auto options = fewbit::bench::parse(argc, argv);
  const auto done = options ? fewbit::bench::run(*options) : options.error();
  if (done) return 0;
  fmt::print(stderr, "bench_repack: {}\n", done.error().message());
  return 1;
}
