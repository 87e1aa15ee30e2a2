// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "fewbit/executor.hpp"

namespace fewbit::testing {

// Claims any number of threads and runs the tasks one by one, last first: work that depends on the
// order of its tasks or on their number gives another result.
class BackwardExecutor : public Executor {
 public:
  explicit BackwardExecutor(int threads) : threads_(threads) {}
  int threads() const override { return threads_; }
  void run(int count, Task task, void* context) override {
    for (int i = count - 1; i >= 0; --i) task(context, i);
  }

 private:
  int threads_;
};

}  // namespace fewbit::testing
