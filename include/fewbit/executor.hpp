// SPDX-License-Identifier: Apache-2.0
// Who runs parallel work. The library brings a thread pool; an engine may pass its own.
#pragma once

#include <memory>
#include <type_traits>

#include "fewbit/result.hpp"

namespace fewbit {

// Runs `count` indexed tasks and returns when all are done. Task i always gets the same work, so
// results never depend on which thread ran it or on the number of threads.
class Executor {
 public:
  using Task = void (*)(void* context, int index);
  virtual ~Executor() = default;
  virtual int threads() const = 0;
  virtual void run(int count, Task task, void* context) = 0;
};

// Calls fn(i) for i in [0, count) on the executor. fn must not throw.
template <class Fn>
void parallel_for(Executor& executor, int count, Fn&& fn) {
  using Callable = std::remove_reference_t<Fn>;
  executor.run(
      count, [](void* context, int index) { (*static_cast<Callable*>(context))(index); },
      const_cast<void*>(static_cast<const void*>(&fn)));
}

// threads = 0: FEWBIT_THREADS if set, else min(affinity, cgroup quota rounded down, physical
// cores). Error `invalid_argument` for a negative count or an unreadable FEWBIT_THREADS.
Result<std::unique_ptr<Executor>> make_thread_pool(int threads = 0);
// Runs everything on the calling thread.
Executor& serial_executor();

}  // namespace fewbit
