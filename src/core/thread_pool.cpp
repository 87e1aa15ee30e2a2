// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/cpu_topology.hpp"
#include "core/environment.hpp"
#include "core/quote.hpp"
#include "core/thread_variable.hpp"
#include "fewbit/executor.hpp"

namespace fewbit {
namespace {

constexpr int most_threads = 1024;
// About 25 to 50 microseconds: covers what one thread does between two steps of a layer and
// between two layers, where a sleeping thread would have to be woken.
constexpr int spin_rounds = 2000;

// True on a thread that is running a task of some pool. A run started there is done in place: its
// pool may be waiting for this very thread.
thread_local bool inside_task = false;

void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns when the value is no longer `old`.
template <class T>
void wait_while_equal(const std::atomic<T>& value, T old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    relax_cpu();
  }
  value.wait(old, std::memory_order_acquire);
}

class SerialExecutor final : public Executor {
 public:
  int threads() const override { return 1; }
  void run(int count, Task task, void* context) override {
    for (int i = 0; i < count; ++i) task(context, i);
  }
};

// `threads` - 1 workers and the calling thread. Part p of a run of `count` tasks on `parts` threads
// is the indices [count * p / parts, count * (p + 1) / parts), and thread p's own. What a worker
// has not begun when the caller is done with its own part, the caller does: a worker that the
// system keeps waiting holds up nobody.
class ThreadPool final : public Executor {
 public:
  ThreadPool(int threads, int spins) : slots_(static_cast<std::size_t>(threads)), spins_(spins) {}

  ~ThreadPool() override {
    stopping_.store(true, std::memory_order_relaxed);
    for (int part = 1; part < threads(); ++part) signal(part);
    workers_.clear();  // joins
  }
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Before the first run. Throws std::system_error when the system gives no more threads.
  void start() {
    for (int part = 1; part < threads(); ++part) {
      workers_.emplace_back([this, part] { work(part); });
    }
  }

  int threads() const override { return static_cast<int>(slots_.size()); }

  void run(int count, Task task, void* context) override {
    if (count <= 1 || slots_.size() == 1 || inside_task) {
      for (int i = 0; i < count; ++i) task(context, i);
      return;
    }
    const std::scoped_lock lock(one_run_);
    const int parts = count < threads() ? count : threads();
    job_ = {count, parts, task, context};
    unfinished_.store(parts - 1, std::memory_order_relaxed);
    for (int part = 1; part < parts; ++part) signal(part);
    inside_task = true;
    run_part(0);
    help(parts);
    inside_task = false;
    int left = unfinished_.load(std::memory_order_acquire);
    while (left != 0) {
      wait_while_equal(unfinished_, left, spins_);
      left = unfinished_.load(std::memory_order_acquire);
    }
  }

 private:
  struct Job {
    int count = 0;
    int parts = 0;
    Task task = nullptr;
    void* context = nullptr;
  };
  // One a cache line, so that waking a worker does not disturb the others.
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> signals = 0;
    std::atomic<std::uint32_t> taken = 0;  // the last signal whose part somebody runs
  };

  Slot& slot(int part) { return slots_[static_cast<std::size_t>(part)]; }

  // Releases what was written before to that worker.
  void signal(int part) {
    slot(part).signals.fetch_add(1, std::memory_order_release);
    slot(part).signals.notify_one();
  }

  // Whether the caller of this function is the one to run the part of the last signal. The job
  // can't change before that part is done; one who comes late for an older signal takes nothing.
  bool take(int part) {
    const std::uint32_t signal = slot(part).signals.load(std::memory_order_acquire);
    std::uint32_t before = signal - 1;
    return slot(part).taken.compare_exchange_strong(before, signal, std::memory_order_acq_rel);
  }

  void run_taken(int part) {
    run_part(part);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }

  // A worker that is awake gets a moment to begin its own part, whose data its cache may hold.
  void help(int parts) {
    for (int i = 0; i < spins_ && unfinished_.load(std::memory_order_acquire) != 0; ++i) {
      relax_cpu();
    }
    for (int part = 1; part < parts; ++part) {
      if (take(part)) run_taken(part);
    }
  }

  void run_part(int part) {
    const auto bound = [this](std::int64_t p) {
      return static_cast<int>(job_.count * p / job_.parts);
    };
    for (int i = bound(part); i < bound(part + 1); ++i) job_.task(job_.context, i);
  }

  void work(int part) {
    inside_task = true;
    std::uint32_t seen = 0;
    while (true) {
      wait_while_equal(slot(part).signals, seen, spins_);
      seen = slot(part).signals.load(std::memory_order_acquire);
      if (stopping_.load(std::memory_order_relaxed)) return;
      if (take(part)) run_taken(part);
    }
  }

  std::vector<Slot> slots_;
  const int spins_;
  std::mutex one_run_;
  Job job_;
  std::atomic<int> unfinished_ = 0;
  std::atomic<bool> stopping_ = false;
  std::vector<std::jthread> workers_;
};

Result<int> threads_wanted(int asked) {
  if (asked < 0 || asked > most_threads) {
    return Error{ErrorCode::invalid_argument,
                 "asked for " + std::to_string(asked) + " threads, expected 0 (automatic) to " +
                     std::to_string(most_threads),
                 ""};
  }
  if (asked > 0) return asked;
  FEWBIT_TRY(const std::optional<int> number, threads_by_variable());
  return number.value_or(std::min(usable_threads(cpu_topology()), most_threads));
}

}  // namespace

Result<std::optional<int>> threads_by_variable() {
  const std::optional<std::string>& text = environment().threads;
  if (!text) return std::optional<int>();
  int number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  const bool whole = error == std::errc{} && end == text->data() + text->size();
  if (!whole || number < 1 || number > most_threads) {
    return Error{ErrorCode::invalid_argument,
                 "found " + quote(*text) + ", expected a number of threads from 1 to " +
                     std::to_string(most_threads),
                 "FEWBIT_THREADS"};
  }
  return std::optional<int>(number);
}

Result<std::unique_ptr<Executor>> make_thread_pool(int threads) {
  FEWBIT_TRY(const int count, threads_wanted(threads));
  // A spinning thread must not keep a core from the thread it waits for.
  const int spins = count <= usable_threads(cpu_topology()) ? spin_rounds : 0;
  try {
    auto pool = std::make_unique<ThreadPool>(count, spins);
    pool->start();
    return std::unique_ptr<Executor>(std::move(pool));
  } catch (const std::system_error& error) {
    return Error{ErrorCode::limit,
                 "can't start " + std::to_string(count) + " threads: " + error.what(), ""};
  }
}

Executor& serial_executor() {
  static SerialExecutor executor;
  return executor;
}

}  // namespace fewbit
