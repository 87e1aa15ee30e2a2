// SPDX-License-Identifier: Apache-2.0
#include "prepared/prepare_work.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "prepared/content_hash.hpp"
#include "prepared/source_expert.hpp"
#include "select/prepare_moe.hpp"
#include "select/problem.hpp"

namespace fewbit {
namespace {

// The expert, then what in it: "w13".
Error within(const Error& error, const std::string& where) {
  const bool said = error.where.empty() || where.starts_with(error.where);
  return Error{error.code, error.what, said ? where : where + " " + error.where};
}

// What the weights have: a padded rank's are smaller than what its kernels see.
MoeProblem unpadded_problem(const PlannedLayer& layer) {
  MoeProblem problem = layer.info.problem;
  problem.intermediate_size = layer.slice.features;
  return problem;
}

}  // namespace

PrepareWork::PrepareWork(const Checkpoint& source, const PreparePlan& plan,
                         const PrepareOptions& options, Target target)
    : source_(source),
      plan_(plan),
      options_(options),
      target_(std::move(target)),
      left_(plan.files()),
      hashes_(plan.files()),
      noted_(Clock::now()) {
  for (std::size_t i = 0; i < plan.tasks.size(); ++i) {
    if (target_.done[i]) {
      earlier_bytes_ += plan.tasks[i].source_bytes;
    } else {
      ++left_[plan.tasks[i].file];
    }
  }
}

Result<void> PrepareWork::run(Executor& executor) {
  const int workers = std::max(executor.threads(), 1);
  parallel_for(executor, workers, [this](int worker) { work(worker); });
  // Also after a failure: what is done need not be done again.
  Result<void> noted = note();
  if (failure_) return *failure_;
  return noted;
}

// Worker 0 is the caller's thread: it reports progress and hears of a cancellation.
void PrepareWork::work(int worker) {
  ExpertScratch scratch;
  const auto tasks = static_cast<std::int64_t>(plan_.tasks.size());
  const auto all = tasks + static_cast<std::int64_t>(plan_.files());
  while (!stopped()) {
    const std::int64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    if (number >= all) return;
    Result<void> done;
    if (number >= tasks) {
      // A file whose tasks an earlier run has done; others are hashed by who ends them.
      const auto file = static_cast<std::size_t>(number - tasks);
      const bool full = std::ranges::none_of(plan_.tasks, [&](const PrepareTask& task) {
        return task.file == file &&
               !target_.done[static_cast<std::size_t>(&task - plan_.tasks.data())];
      });
      if (full) done = hash(file);
    } else if (!target_.done[static_cast<std::size_t>(number)]) {
      const PrepareTask& task = plan_.tasks[static_cast<std::size_t>(number)];
      done = do_task(task, scratch);
      if (done) done = finished(number);
      if (done) done = hash_when_full(task.file);
      done_bytes_ += task.source_bytes;
    }
    if (!done) return fail(done.error());
    if (worker == 0 && options_.progress &&
        !options_.progress(earlier_bytes_ + done_bytes_, plan_.source_bytes)) {
      return fail({ErrorCode::cancelled,
                   fmt::format("stopped after {} of {} bytes; the same command goes on from there",
                               earlier_bytes_ + done_bytes_, plan_.source_bytes),
                   target_.folder.string()});
    }
  }
}

void PrepareWork::fail(const Error& error) {
  const std::scoped_lock lock(mutex_);
  if (!failure_) failure_ = error;
  stopped_ = true;
}

Result<void> PrepareWork::do_task(const PrepareTask& task, ExpertScratch& scratch) {
  if (task.file == 0) return copy_tensor(static_cast<std::size_t>(task.index));
  return pack(plan_.layers[task.file - 1], task.file, task.index, scratch);
}

Result<void> PrepareWork::copy_tensor(std::size_t index) {
  constexpr std::size_t piece_bytes = std::size_t{8} << 20;
  const TensorInfo& info = *plan_.kept[index];
  const std::uint64_t begin = plan_.rest.tensors[index].file_offset;
  const auto bytes = source_.tensor(info).view.bytes;
  for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
    const std::size_t size = std::min(piece_bytes, bytes.size() - at);
    FEWBIT_TRY(target_.files[0].write(bytes.subspan(at, size), begin + at));
    TensorInfo piece = info;
    piece.file_offset += at;
    piece.bytes = size;
    source_.release(piece);
  }
  return {};
}

Result<void> PrepareWork::pack(const PlannedLayer& layer, std::size_t file, std::int64_t expert,
                               ExpertScratch& scratch) {
  const MoePlan& plan = layer.info.plan;
  const std::int64_t number = layer.slice.first_expert + expert;
  const std::string where = fmt::format("{} expert {}", layer.info.problem.where, number);
  FEWBIT_TRY(const ExpertWeights whole, read_source_expert(layer, source_, number, where));
  FEWBIT_TRY(const ExpertWeights cut, slice_expert(whole, layer.slice, where));
  FEWBIT_TRY(check_expert(unpadded_problem(layer), where, cut));
  FEWBIT_TRY(scratch.lay_out(plan));
  const auto packed = layer.backend->pack_expert(layer.info.problem, plan, cut, scratch.shares);
  if (!packed) return within(packed.error(), where);
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const PlannedBuffer& buffer = plan.buffers[i];
    const std::uint64_t to =
        layer.file.begin[i] + static_cast<std::uint64_t>(expert) * buffer.expert_bytes;
    if (buffer.use == BufferUse::verbatim) {
      FEWBIT_TRY(const Tensor part, verbatim_share(buffer, cut, where));
      FEWBIT_TRY(target_.files[file].write(part.view.bytes, to));
    } else {
      FEWBIT_TRY(target_.files[file].write(scratch.shares[i], to));
    }
  }
  release_source_expert(layer, source_, number);
  return {};
}

Result<void> PrepareWork::finished(std::int64_t number) {
  {
    const std::scoped_lock lock(mutex_);
    pending_.push_back(number);
    if (Clock::now() - noted_ < options_.journal_interval) return {};
    noted_ = Clock::now();
  }
  return note();
}

// The data first, then the journal that speaks of it.
Result<void> PrepareWork::note() {
  const std::scoped_lock one(journal_mutex_);
  std::vector<std::int64_t> tasks;
  {
    const std::scoped_lock lock(mutex_);
    tasks.swap(pending_);
  }
  if (tasks.empty()) return {};
  std::vector<bool> touched(plan_.files());
  for (const std::int64_t task : tasks) {
    touched[plan_.tasks[static_cast<std::size_t>(task)].file] = true;
  }
  for (std::size_t i = 0; i < touched.size(); ++i) {
    if (touched[i]) FEWBIT_TRY(target_.files[i].sync_data());
  }
  return target_.journal->append(tasks);
}

Result<void> PrepareWork::hash_when_full(std::size_t file) {
  if (left_[file].fetch_sub(1, std::memory_order_acq_rel) != 1) return {};
  return hash(file);
}

Result<void> PrepareWork::hash(std::size_t file) {
  const auto go_on = [this](std::uint64_t) { return !stopped(); };
  FEWBIT_TRY(hashes_[file], hash_file(target_.folder / plan_.file_name(file), go_on));
  return {};
}

Result<void> PrepareWork::close() {
  for (OutputFile& file : target_.files) {
    FEWBIT_TRY(file.sync());
    FEWBIT_TRY(file.close());
  }
  target_.files.clear();
  return {};
}

}  // namespace fewbit
