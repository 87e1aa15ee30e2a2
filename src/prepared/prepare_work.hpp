// SPDX-License-Identifier: Apache-2.0
// The tasks of a plan, done side by side: from the mapped source into their places in open files.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/output_file.hpp"
#include "prepared/prepare_plan.hpp"
#include "select/expert_scratch.hpp"

namespace fewbit {

class PrepareWork {
 public:
  struct Target {
    std::filesystem::path folder;
    std::vector<OutputFile> files;  // in the order of the plan
    Journal* journal = nullptr;
    std::vector<bool> done;  // by task
  };
  PrepareWork(const Checkpoint& source, const PreparePlan& plan, const PrepareOptions& options,
              Target target);

  // Does what is not done. Errors: cancelled, io, and those of reading and packing an expert. What
  // was finished until then is noted in the journal.
  Result<void> run(Executor& executor);

  // After run(): the hash of each file, in the order of the plan.
  const std::vector<std::string>& hashes() const { return hashes_; }
  // Flushes and closes the files.
  Result<void> close();
  std::uint64_t done_bytes() const { return done_bytes_; }

 private:
  void work(int worker);
  Result<void> do_task(const PrepareTask& task, ExpertScratch& scratch);
  Result<void> copy_tensor(std::size_t index);
  Result<void> pack(const PlannedLayer& layer, std::size_t file, std::int64_t expert,
                    ExpertScratch& scratch);
  Result<void> finished(std::int64_t number);
  Result<void> note();
  Result<void> hash(std::size_t file);
  Result<void> hash_when_full(std::size_t file);
  void fail(const Error& error);
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  using Clock = std::chrono::steady_clock;
  const Checkpoint& source_;
  const PreparePlan& plan_;
  const PrepareOptions& options_;
  Target target_;
  std::vector<std::atomic<std::int64_t>> left_;  // tasks of each file
  std::vector<std::string> hashes_;
  std::atomic<std::int64_t> next_ = 0;  // task, then file without tasks left
  std::atomic<std::uint64_t> done_bytes_ = 0;
  std::uint64_t earlier_bytes_ = 0;  // done by an earlier run
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // guards failure_, pending_, noted_
  std::optional<Error> failure_;
  std::vector<std::int64_t> pending_;  // done, not in the journal
  Clock::time_point noted_;
  std::mutex journal_mutex_;  // one note at a time
};

}  // namespace fewbit
