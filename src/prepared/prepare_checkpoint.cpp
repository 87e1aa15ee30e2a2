// SPDX-License-Identifier: Apache-2.0
// The unfinished output on disk: begun, resumed, completed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <system_error>
#include <utility>

#include "checkpoint/json.hpp"
#include "checkpoint/leftovers.hpp"
#include "checkpoint/prepared_folder.hpp"
#include "checkpoint/system_error.hpp"
#include "checkpoint/target_path.hpp"
#include "prepared/check_source.hpp"
#include "prepared/output_manifest.hpp"
#include "prepared/prepare_plan.hpp"
#include "prepared/prepare_work.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// Whether it is a folder with nothing but folders in it.
bool holds_no_files(const fs::path& folder) {
  std::error_code failure;
  if (!fs::is_directory(fs::symlink_status(folder, failure))) return false;
  fs::recursive_directory_iterator at(folder, failure);
  for (; !failure && at != fs::recursive_directory_iterator(); at.increment(failure)) {
    if (!fs::is_directory(at->symlink_status(failure))) return false;
  }
  return !failure;
}

// The mark of an unfinished folder goes last: what stays of a removal that is killed is still one.
Result<void> remove_tree(const fs::path& path) {
  std::error_code failure;
  if (is_unfinished(path)) {
    std::vector<fs::path> others;
    for (const fs::directory_entry& entry : fs::directory_iterator(path, failure)) {
      if (entry.path().filename() != unfinished_name) others.push_back(entry.path());
    }
    for (const fs::path& other : others) {
      if (!failure) fs::remove_all(other, failure);
    }
    if (failure) return system_error("remove", failure.value(), path);
  }
  fs::remove_all(path, failure);
  if (failure) return system_error("remove", failure.value(), path);
  return {};
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class Job {
 public:
  Job(const Checkpoint& source, const PrepareOptions& options, const PreparePlan& plan,
      fs::path target)
      : source_(source),
        options_(options),
        plan_(plan),
        target_(std::move(target)),
        folder_(target_.string() + ".partial"),
        journal_path_(target_.string() + ".partial.journal") {}

  Result<PrepareReport> run(Executor& executor) {
    const auto start = std::chrono::steady_clock::now();
    // A run may have ended between its last two steps.
    const bool complete = is_there(target_);
    if (complete && (!is_there(journal_path_) || is_there(folder_))) return target_exists();
    FEWBIT_TRY(Journal journal, Journal::open(journal_path_));
    if (const auto begun = begin(journal, complete); !begun) {
      if (journal.is_empty()) static_cast<void>(journal.remove());
      return begun.error();
    }
    const auto done = complete ? verify(target_, executor) : write(journal, executor);
    if (!done) {
      if (is_hopeless(done.error())) drop(journal, complete ? target_ : folder_);
      return done.error();
    }
    FEWBIT_TRY(journal.remove());
    FEWBIT_TRY(sync_folder(target_.parent_path()));
    report_.seconds = seconds_since(start);
    return report();
  }

 private:
  Error target_exists() const {
    return Error{ErrorCode::invalid_argument,
                 "exists already; a prepared model is written to a new folder", target_.string()};
  }

  // What is done already; a fresh journal otherwise.
  Result<void> begin(Journal& journal, bool complete) {
    done_.assign(plan_.tasks.size(), std::nullopt);
    if (journal.is_foreign() && !is_unfinished(folder_)) {
      if (complete) return target_exists();
      return Error{ErrorCode::invalid_argument,
                   "is no journal of fewbit's, and its place is needed", journal_path_.string()};
    }
    Journal::Content content;
    // Nothing is left of what it speaks of.
    const bool alone = !complete && !journal.is_empty() && !is_there(folder_);
    report_.journal_alone = alone && !options_.restart;
    const bool anew = options_.restart || alone;
    if (const auto read = journal.read()) {
      content = *read;
    } else if (!anew || complete) {
      return Error{read.error().code, read.error().what + " (restart drops it)",
                   read.error().where};
    }
    if (content.begun && (!anew || complete)) {
      const std::string difference = identity_difference(content.identity, plan_.identity);
      if (!difference.empty()) {
        if (complete) return target_exists();
        return Error{
            ErrorCode::invalid_argument,
            fmt::format("the unfinished output can't go on: {} (restart drops it)", difference),
            folder_.string()};
      }
      if (complete) {
        report_.resumed_experts = experts();
        return {};
      }
      return resume(journal, content);
    }
    if (complete) return target_exists();
    FEWBIT_TRY(check_removable(journal, content.begun));
    fresh_ = true;
    FEWBIT_TRY(remove_tree(folder_));
    return journal.begin(plan_.identity);
  }

  // What is in our place may go: marked, named by a journal (a killed run may have left the folder
  // before it was marked or after the mark was removed), or without a file.
  Result<void> check_removable(const Journal& journal, bool begun) const {
    if (!is_there(folder_)) return {};
    if (!is_unfinished(folder_) && !begun && !holds_no_files(folder_)) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("is no unfinished output (it has no {}, and no journal is beside "
                               "it), and its place is needed",
                               unfinished_name),
                   folder_.string()};
    }
    if (options_.restart) return {};
    return Error{ErrorCode::invalid_argument,
                 fmt::format("an unfinished output {} (restart drops it)",
                             journal.is_empty() ? "without its journal, or with an empty one"
                                                : "whose journal has no whole line"),
                 folder_.string()};
  }

  Result<void> resume(Journal& journal, const Journal::Content& content) {
    for (const FinishedTask& one : content.done) {
      if (one.task >= static_cast<std::int64_t>(done_.size())) {
        return Error{ErrorCode::corrupt,
                     fmt::format("task {} of {} is done, it says (restart drops it)", one.task,
                                 done_.size()),
                     journal_path_.string()};
      }
      done_[static_cast<std::size_t>(one.task)] = one.hash;
    }
    return journal.resume();
  }

  Result<void> write(Journal& journal, Executor& executor) {
    auto files = open_files();
    if (!files) {
      // Nothing was done yet: a full disk keeps nothing of it.
      if (fresh_) drop(journal, folder_);
      return files.error();
    }
    const auto start = std::chrono::steady_clock::now();
    PrepareWork work(
        source_, plan_, options_,
        {.folder = folder_, .files = *std::move(files), .journal = &journal, .done = done_});
    if (const auto worked = work.run(executor); !worked) {
      // A source that was cut meanwhile makes reads and writes fail that do not name it.
      if (worked.error().code != ErrorCode::cancelled) FEWBIT_TRY(check_unchanged(plan_.sources));
      return worked.error();
    }
    report_.packing_seconds = seconds_since(start);
    report_.packed_source_bytes = work.done_bytes();
    report_.resumed_experts = work.resumed_experts();
    report_.redone = work.redone();
    FEWBIT_TRY(work.close());
    FEWBIT_TRY(check_unchanged(plan_.sources));
    FEWBIT_TRY(write_small_files(work.hashes()));
    FEWBIT_TRY(verify(folder_, executor));
    FEWBIT_TRY(unmark_unfinished(folder_));
    FEWBIT_TRY(sync_folder(folder_ / "prepared"));
    FEWBIT_TRY(sync_folder(folder_));
    return rename_to_new(folder_, target_);
  }

  Result<std::vector<OutputFile>> open_files() {
    std::error_code failure;
    fs::create_directories(folder_ / "prepared", failure);
    if (failure) return system_error("create", failure.value(), folder_);
    FEWBIT_TRY(mark_unfinished(folder_));
    if (fresh_) FEWBIT_TRY(check_room(folder_, output_bytes()));
    std::vector<OutputFile> files;
    for (std::size_t i = 0; i < plan_.files(); ++i) {
      FEWBIT_TRY(OutputFile file, open_file(i));
      files.push_back(std::move(file));
    }
    return files;
  }

  Result<OutputFile> open_file(std::size_t i) {
    const fs::path path = folder_ / plan_.file_name(i);
    if (!fresh_) {
      auto file = OutputFile::reopen(path, plan_.file_bytes(i));
      if (file) {
        FEWBIT_TRY(write_fixed(*file, i));
        return file;
      }
    }
    // Not there or not whole: none of its tasks is done.
    for (std::size_t task = 0; task < done_.size(); ++task) {
      if (plan_.tasks[task].file == i) done_[task].reset();
    }
    if (is_there(path)) FEWBIT_TRY(remove_tree(path));
    FEWBIT_TRY(OutputFile file, OutputFile::create(path, plan_.file_bytes(i)));
    FEWBIT_TRY(write_fixed(file, i));
    return file;
  }

  // What no task writes.
  Result<void> write_fixed(const OutputFile& file, std::size_t i) const {
    if (i == 0) return file.write(bytes_of(plan_.rest.shards.front().header), 0);
    const LayerFile& layer = plan_.layers[i - 1].file;
    FEWBIT_TRY(file.write(bytes_of(layer.header), 0));
    for (const auto& [begin, size] : layer.gaps) {
      const std::vector<std::byte> zeros(size);
      FEWBIT_TRY(file.write(zeros, begin));
    }
    return {};
  }

  Result<void> write_small(const std::string& name, std::span<const std::byte> content) const {
    if (is_there(folder_ / name)) FEWBIT_TRY(remove_tree(folder_ / name));
    FEWBIT_TRY(OutputFile file, OutputFile::create(folder_ / name, content.size()));
    FEWBIT_TRY(file.write(content, 0));
    FEWBIT_TRY(file.sync());
    return file.close();
  }

  // Side files of the source, then the manifest, which makes it a prepared model.
  Result<void> write_small_files(const std::vector<std::string>& hashes) const {
    FEWBIT_TRY(const std::vector<SmallFile> small, small_files(source_, plan_));
    for (const SmallFile& file : small) FEWBIT_TRY(write_small(file.name, file.bytes()));
    const PreparedManifest manifest = output_manifest(plan_, options_.split, hashes, small);
    const std::string text = manifest_json(manifest).dump(1) + "\n";
    return write_small(std::string(manifest_name), bytes_of(text));
  }

  Result<void> verify(const fs::path& folder, Executor& executor) {
    if (!options_.verify) return {};
    FEWBIT_TRY(report_.verified,
               verify_prepared(folder, &source_, options_.verify_progress, executor));
    return {};
  }

  // Whatever runs next would meet the same: unlike a full disk or a cancellation.
  static bool is_hopeless(const Error& error) {
    return error.code != ErrorCode::io && error.code != ErrorCode::cancelled &&
           error.code != ErrorCode::limit;
  }
  static void drop(Journal& journal, const fs::path& folder) {
    // The journal tells whose the folder is.
    if (remove_tree(folder)) static_cast<void>(journal.remove());
  }

  std::int64_t experts() const {
    return std::ranges::count_if(plan_.tasks,
                                 [](const PrepareTask& task) { return task.file > 0; });
  }

  PrepareReport report() {
    report_.backend = plan_.identity.front().second;
    report_.layout = layouts_text(plan_.layers.front().info.plan);
    report_.activation_dtype = plan_.layers.front().info.problem.activation_dtype;
    report_.layers = std::ssize(plan_.layers);
    report_.experts = experts();
    report_.source_bytes = plan_.source_bytes;
    report_.output_bytes = output_bytes();
    return report_;
  }

  std::uint64_t output_bytes() const {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < plan_.files(); ++i) bytes += plan_.file_bytes(i);
    return bytes;
  }

  const Checkpoint& source_;
  const PrepareOptions& options_;
  const PreparePlan& plan_;
  fs::path target_;
  fs::path folder_;
  fs::path journal_path_;
  std::vector<std::optional<std::uint64_t>> done_;  // by task: hash of its bytes
  bool fresh_ = false;                              // begun by this run
  PrepareReport report_;
};

// The source is neither the output nor the folder that it grows in, nor inside of them.
Result<void> check_apart(const Checkpoint& source, const fs::path& target) {
  std::error_code ignored;
  for (fs::path at = fs::weakly_canonical(source.directory(), ignored); at.has_relative_path();
       at = at.parent_path()) {
    for (const char* suffix : {"", ".partial"}) {
      if (!fs::equivalent(at, target.string() + suffix, ignored)) continue;
      return Error{
          ErrorCode::invalid_argument,
          fmt::format("the source {} is in it; expected a new folder", source.directory().string()),
          target.string() + suffix};
    }
  }
  return {};
}

}  // namespace

Result<PrepareReport> prepare_checkpoint(const Checkpoint& source, const fs::path& output,
                                         const PrepareOptions& options, Executor& executor) {
  FEWBIT_TRY(const fs::path target, target_path(output));
  FEWBIT_TRY(check_apart(source, target));
  FEWBIT_TRY(refuse_prepared(source.directory(), "prepare"));
  FEWBIT_TRY(const Identified identified, identify(source));
  FEWBIT_TRY(std::vector<Finding> warnings,
             check_source(source, identified, options.checking_progress));
  FEWBIT_TRY(const PreparePlan plan, plan_prepare(source, identified, options));
  FEWBIT_TRY(PrepareReport report, Job(source, options, plan, target).run(executor));
  report.source_warnings = std::move(warnings);
  return report;
}

}  // namespace fewbit
