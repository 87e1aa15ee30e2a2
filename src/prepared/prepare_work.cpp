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

struct FileRange {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};

// Where a task's bytes lie in its file, in the order in which they are hashed.
std::vector<FileRange> ranges_of(const PreparePlan& plan, const PrepareTask& task) {
  std::vector<FileRange> ranges;
  if (task.file > 0) {
    const PlannedLayer& layer = plan.layers[task.file - 1];
    for (std::size_t i = 0; i < layer.info.plan.buffers.size(); ++i) {
      const std::uint64_t each = layer.info.plan.buffers[i].expert_bytes;
      ranges.push_back({layer.file.begin[i] + static_cast<std::uint64_t>(task.index) * each, each});
    }
    return ranges;
  }
  constexpr std::uint64_t piece_bytes = std::uint64_t{8} << 20;
  const auto index = static_cast<std::size_t>(task.index);
  const std::uint64_t bytes = plan.kept[index]->bytes;
  for (std::uint64_t at = 0; at < bytes; at += piece_bytes) {
    ranges.push_back(
        {plan.rest.tensors[index].file_offset + at, std::min(piece_bytes, bytes - at)});
  }
  return ranges;
}

}  // namespace

PrepareWork::PrepareWork(const Checkpoint& source, const PreparePlan& plan,
                         const PrepareOptions& options, Target target)
    : source_(source),
      plan_(plan),
      options_(options),
      target_(std::move(target)),
      left_(plan.files()),
      written_(plan.tasks.size()),
      write_mutexes_(plan.files()),
      hashes_(plan.files()),
      noted_(Clock::now()) {
  std::vector<std::vector<GrowingHash::Part>> parts(plan.files());
  for (std::size_t i = 0; i < plan.tasks.size(); ++i) {
    const PrepareTask& task = plan.tasks[i];
    ++left_[task.file];
    if (target_.done[i]) earlier_bytes_ += task.source_bytes;
    for (const FileRange& range : ranges_of(plan, task)) {
      parts[task.file].push_back({.begin = range.begin, .task = static_cast<std::int64_t>(i)});
    }
  }
  for (std::size_t i = 0; i < plan.files(); ++i) {
    growing_.push_back(
        std::make_unique<GrowingHash>(target_.files[i], plan.file_bytes(i), std::move(parts[i])));
  }
}

Result<void> PrepareWork::run(Executor& executor) {
  earlier_.resize(plan_.files());
  for (std::size_t i = 0; i < plan_.tasks.size(); ++i) {
    const std::size_t file = plan_.tasks[i].file;
    if (!target_.done[i] || earlier_[file] != nullptr) continue;
    FEWBIT_TRY(earlier_[file], MappedFile::open(target_.folder / plan_.file_name(file)));
  }
  const int workers = std::max(executor.threads(), 1);
  parallel_for(executor, workers, [this](int worker) { work(worker); });
  // Also after a failure: what is done need not be done again.
  Result<void> noted = note();
  if (failure_) return *failure_;
  return noted;
}

// Worker 0 is the caller's thread: it reports progress and hears of a cancellation.
void PrepareWork::work(int worker) {
  Memory memory;
  const auto tasks = static_cast<std::int64_t>(plan_.tasks.size());
  const auto all = tasks + static_cast<std::int64_t>(plan_.files());
  while (!stopped()) {
    const std::int64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    if (number >= all) return;
    Result<void> done;
    if (number < tasks) {
      done = do_number(number, memory);
    } else if (!has_tasks(static_cast<std::size_t>(number - tasks))) {
      done = finish_hash(static_cast<std::size_t>(number - tasks), {});
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

bool PrepareWork::has_tasks(std::size_t file) const {
  return std::ranges::any_of(plan_.tasks,
                             [&](const PrepareTask& task) { return task.file == file; });
}

bool PrepareWork::still_there(std::int64_t number) const {
  const PrepareTask& task = plan_.tasks[static_cast<std::size_t>(number)];
  const MappedFile& file = *earlier_[task.file];
  std::uint64_t hash = 0;
  for (const FileRange& range : ranges_of(plan_, task)) {
    hash = hash_on(hash, file.bytes().subspan(range.begin, range.bytes));
    file.release(range.begin, range.bytes);
  }
  return hash == target_.done[static_cast<std::size_t>(number)];
}

// Unless an earlier run has done it, and what it wrote is still there.
Result<void> PrepareWork::do_number(std::int64_t number, Memory& memory) {
  const PrepareTask& task = plan_.tasks[static_cast<std::size_t>(number)];
  const bool done = target_.done[static_cast<std::size_t>(number)].has_value();
  if (done && still_there(number)) {
    if (task.file > 0) ++resumed_experts_;
    return hash_after(number, {});
  }
  if (done) {
    ++redone_;
    earlier_bytes_ -= task.source_bytes;
  }
  memory.written.clear();
  FEWBIT_TRY(const std::uint64_t hash, do_task(task, memory));
  FEWBIT_TRY(finished({.task = number, .hash = hash}));
  done_bytes_ += task.source_bytes;
  FEWBIT_TRY(hash_after(number, memory.written));
  if (task.file > 0) {
    const PlannedLayer& layer = plan_.layers[task.file - 1];
    layer.experts.release(source_, layer.slice.first_expert + task.index);
  }
  memory.verbatim.clear();
  return {};
}

Result<std::uint64_t> PrepareWork::do_task(const PrepareTask& task, Memory& memory) {
  if (task.file == 0) return copy_tensor(task);
  return pack(task, memory);
}

Result<std::uint64_t> PrepareWork::copy_tensor(const PrepareTask& task) {
  const TensorInfo& info = *plan_.kept[static_cast<std::size_t>(task.index)];
  const auto bytes = source_.tensor(info).view.bytes;
  std::uint64_t hash = 0;
  std::size_t at = 0;
  for (const FileRange& range : ranges_of(plan_, task)) {
    const auto part = bytes.subspan(at, range.bytes);
    FEWBIT_TRY(target_.files[0].write(part, range.begin));
    hash = hash_on(hash, part);
    TensorInfo piece = info;
    piece.file_offset += at;
    piece.bytes = range.bytes;
    source_.release(piece);
    at += range.bytes;
  }
  return hash;
}

Result<std::uint64_t> PrepareWork::pack(const PrepareTask& task, Memory& memory) {
  const PlannedLayer& layer = plan_.layers[task.file - 1];
  const MoePlan& plan = layer.info.plan;
  const std::int64_t number = layer.slice.first_expert + task.index;
  const std::string where = fmt::format("{} expert {}", layer.info.problem.where, number);
  layer.experts.map_pages(source_, number);
  FEWBIT_TRY(const ExpertWeights whole, read_source_expert(layer, source_, number, where));
  layer.experts.release_copied(source_, number, whole);
  FEWBIT_TRY(const ExpertWeights cut, slice_expert(whole, layer.slice, where));
  FEWBIT_TRY(check_expert(unpadded_problem(layer), where, cut));
  FEWBIT_TRY(memory.packed.lay_out(plan));
  const auto packed =
      layer.backend->pack_expert(layer.info.problem, plan, cut, memory.packed.shares);
  if (!packed) return within(packed.error(), where);
  const std::vector<FileRange> ranges = ranges_of(plan_, task);
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    std::span<const std::byte> share = memory.packed.shares[i];
    if (plan.buffers[i].use == BufferUse::verbatim) {
      FEWBIT_TRY(const Tensor part, verbatim_share(plan.buffers[i], cut, where));
      share = part.view.bytes;
      memory.verbatim.push_back(part);
    }
    memory.written.push_back({.begin = ranges[i].begin, .bytes = share});
    hash = hash_on(hash, share);
  }
  const std::scoped_lock lock(write_mutexes_[task.file]);
  for (const GrowingHash::Written& part : memory.written) {
    FEWBIT_TRY(target_.files[task.file].write(part.bytes, part.begin));
  }
  return hash;
}

Result<void> PrepareWork::finished(FinishedTask task) {
  {
    const std::scoped_lock lock(mutex_);
    pending_.push_back(task);
    if (Clock::now() - noted_ < options_.journal_interval) return {};
    noted_ = Clock::now();
  }
  return note();
}

// The data first, then the journal that speaks of it.
Result<void> PrepareWork::note() {
  const std::scoped_lock one(journal_mutex_);
  std::vector<FinishedTask> tasks;
  {
    const std::scoped_lock lock(mutex_);
    tasks.swap(pending_);
  }
  if (tasks.empty()) return {};
  std::vector<bool> touched(plan_.files());
  for (const FinishedTask& task : tasks) {
    touched[plan_.tasks[static_cast<std::size_t>(task.task)].file] = true;
  }
  for (std::size_t i = 0; i < touched.size(); ++i) {
    if (touched[i]) FEWBIT_TRY(target_.files[i].sync_data());
  }
  return target_.journal->append(tasks);
}

// What is written is still in the caches; the last task of a file waits for its hash.
Result<void> PrepareWork::hash_after(std::int64_t number,
                                     std::span<const GrowingHash::Written> written) {
  written_[static_cast<std::size_t>(number)] = true;
  const std::size_t file = plan_.tasks[static_cast<std::size_t>(number)].file;
  if (left_[file].fetch_sub(1, std::memory_order_acq_rel) == 1) return finish_hash(file, written);
  return growing_[file]->advance(hash_progress(), written);
}

Result<void> PrepareWork::finish_hash(std::size_t file,
                                      std::span<const GrowingHash::Written> written) {
  FEWBIT_TRY(hashes_[file], growing_[file]->finish(hash_progress(), written));
  return {};
}

GrowingHash::Progress PrepareWork::hash_progress() const {
  return {.is_done = [this](std::int64_t task) -> bool {
            return written_[static_cast<std::size_t>(task)];
          },
          .stopped = [this] { return stopped(); }};
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
