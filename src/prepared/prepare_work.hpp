// SPDX-License-Identifier: Apache-2.0
// The tasks of a plan, done side by side: from the mapped source into their places in open files.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/mapped_file.hpp"
#include "checkpoint/output_file.hpp"
#include "prepared/growing_hash.hpp"
#include "prepared/prepare_plan.hpp"
#include "select/expert_scratch.hpp"

namespace fewbit {

class PrepareWork {
 public:
  struct Target {
    std::filesystem::path folder;
    std::vector<OutputFile> files;  // in the order of the plan
    Journal* journal = nullptr;
    std::vector<std::optional<std::uint64_t>> done;  // by task: hash of what an earlier run wrote
  };
  PrepareWork(const Checkpoint& source, const PreparePlan& plan, const PrepareOptions& options,
              Target target);

  // Does what is not done, or no longer has the bytes that it was noted with. Errors: cancelled,
  // io, and those of reading and packing an expert. What was finished until then is noted in the
  // journal.
  Result<void> run(Executor& executor);

  // After run(): the hash of each file, in the order of the plan.
  const std::vector<std::string>& hashes() const { return hashes_; }
  // Flushes and closes the files.
  Result<void> close();
  std::uint64_t done_bytes() const { return done_bytes_; }
  // Experts of an earlier run that are still as it wrote them; tasks of one that are not, and were
  // done again.
  std::int64_t resumed_experts() const { return resumed_experts_; }
  std::int64_t redone() const { return redone_; }

 private:
  // Of a thread.
  struct Memory {
    ExpertScratch packed;
    std::vector<Tensor> verbatim;
    std::vector<GrowingHash::Written> written;  // what the last task wrote, in these
  };
  void work(int worker);
  Result<void> do_number(std::int64_t number, Memory& memory);
  // Hashes of what was written.
  Result<std::uint64_t> do_task(const PrepareTask& task, Memory& memory);
  Result<std::uint64_t> copy_tensor(const PrepareTask& task);
  Result<std::uint64_t> pack(const PrepareTask& task, Memory& memory);
  // Whether the file has the bytes that the task was noted with.
  bool still_there(std::int64_t number) const;
  bool has_tasks(std::size_t file) const;
  Result<void> finished(FinishedTask task);
  Result<void> note();
  Result<void> hash_after(std::int64_t number, std::span<const GrowingHash::Written> written);
  Result<void> finish_hash(std::size_t file, std::span<const GrowingHash::Written> written);
  GrowingHash::Progress hash_progress() const;
  void fail(const Error& error);
  bool stopped() const { return stopped_.load(std::memory_order_relaxed); }

  using Clock = std::chrono::steady_clock;
  const Checkpoint& source_;
  const PreparePlan& plan_;
  const PrepareOptions& options_;
  Target target_;
  std::vector<std::atomic<std::int64_t>> left_;  // tasks of each file
  std::vector<std::atomic<bool>> written_;       // by task
  // Files are written by one thread at a time in any case: a system that lets threads wait between
  // the buffers of an expert keeps them in step, so that nobody packs meanwhile.
  std::vector<std::mutex> write_mutexes_;
  std::vector<std::unique_ptr<GrowingHash>> growing_;
  std::vector<std::string> hashes_;
  std::vector<std::shared_ptr<const MappedFile>> earlier_;  // files in which tasks were done
  std::atomic<std::int64_t> next_ = 0;                      // task, then file without tasks left
  std::atomic<std::uint64_t> done_bytes_ = 0;
  std::atomic<std::uint64_t> earlier_bytes_ = 0;  // done by an earlier run
  std::atomic<std::int64_t> resumed_experts_ = 0;
  std::atomic<std::int64_t> redone_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // guards failure_, pending_, noted_
  std::optional<Error> failure_;
  std::vector<FinishedTask> pending_;  // done, not in the journal
  Clock::time_point noted_;
  std::mutex journal_mutex_;  // one note at a time
};

}  // namespace fewbit
