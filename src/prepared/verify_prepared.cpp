// SPDX-License-Identifier: Apache-2.0
// A prepared model against its own hashes, and against its source.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <utility>

#include "fewbit/prepare.hpp"
#include "prepared/check_folder.hpp"
#include "prepared/content_hash.hpp"
#include "prepared/json_difference.hpp"
#include "prepared/output_manifest.hpp"
#include "prepared/verify_expert.hpp"

namespace fewbit {
namespace {

// Tasks side by side until one fails; the caller's thread reports progress.
class Tasks {
 public:
  Tasks(const ProgressFn& progress, std::uint64_t total) : progress_(progress), total_(total) {}

  template <class Task>
  Result<void> run(Executor& executor, std::size_t count, const Task& task) {
    std::atomic<std::size_t> next = 0;
    parallel_for(executor, std::max(executor.threads(), 1), [&](int worker) {
      while (!stopped_) {
        const std::size_t i = next.fetch_add(1);
        if (i >= count) return;
        const Result<void> done = task(i, worker);
        if (!done) fail(done.error());
      }
    });
    if (failure_) return *failure_;
    return {};
  }

  // False: stop.
  bool add(std::uint64_t bytes, int worker) {
    done_ += bytes;
    if (worker == 0 && progress_ && !progress_(std::min(done_.load(), total_), total_)) {
      fail({ErrorCode::cancelled, fmt::format("stopped after {} of {} bytes", done_.load(), total_),
            ""});
    }
    return !stopped_;
  }
  std::uint64_t done() const { return done_; }

 private:
  void fail(const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (!failure_) failure_ = error;
    stopped_ = true;
  }

  const ProgressFn& progress_;
  std::uint64_t total_;
  std::atomic<std::uint64_t> done_ = 0;
  std::atomic<bool> stopped_ = false;
  std::mutex mutex_;  // guards failure_
  std::optional<Error> failure_;
};

Error differs(const std::string& where, std::string what) {
  return Error{ErrorCode::inconsistent, std::move(what), where};
}

// The rest of the model: its header as it would be written now, its tensors as the source's.
Result<void> compare_rest(const std::filesystem::path& folder, const PreparePlan& plan,
                          const Checkpoint& source) {
  const std::filesystem::path path = folder / plan.file_name(0);
  FEWBIT_TRY(const auto file, MappedFile::open(path));
  const auto header = std::as_bytes(std::span(plan.rest.shards.front().header));
  if (file->bytes().size() != plan.file_bytes(0) ||
      !std::ranges::equal(header, file->bytes().first(header.size()))) {
    return differs(path.string(),
                   fmt::format("{} bytes whose header is not the one that the source gives ({} "
                               "tensors, {} bytes)",
                               file->bytes().size(), plan.kept.size(), plan.file_bytes(0)));
  }
  FEWBIT_TRY(const Checkpoint rest, Checkpoint::open(folder));
  for (const TensorInfo& info : rest.tensors()) {
    const TensorInfo* other = source.find(info.name);
    if (other == nullptr || other->dtype != info.dtype || other->shape != info.shape) {
      return differs(info.name, "not in the source with this type and shape");
    }
    FEWBIT_TRY(compare_bytes("bytes", rest.tensor(info).view.bytes,
                             source.tensor(*other).view.bytes, info.name));
    rest.release(info);
    source.release(*other);
  }
  return {};
}

// Every field against what preparing the source for the same backends and slice gives. Hashes of
// large files are the model's own: their content is compared by itself.
Result<void> compare_manifest(const std::filesystem::path& folder, const PreparedManifest& found,
                              const PreparePlan& plan, const Checkpoint& source) {
  std::vector<std::string> hashes;
  for (std::size_t i = 0; i < plan.files(); ++i) {
    const auto at = std::ranges::find(found.files, plan.file_name(i), &PreparedFile::name);
    hashes.push_back(at == found.files.end() ? "" : at->hash);
  }
  FEWBIT_TRY(const std::vector<SmallFile> small, small_files(source, plan));
  PreparedManifest expected = output_manifest(plan, found.split, hashes, small);
  // Models of before call a header's hash that of the file.
  for (PreparedFile& file : expected.source) {
    const auto at = std::ranges::find(found.source, file.name, &PreparedFile::name);
    if (at != found.source.end() && !at->of_header) file.of_header = false;
  }
  const auto difference = json_difference(manifest_json(expected), manifest_json(found));
  if (!difference) return {};
  return differs((folder / manifest_name).string(),
                 fmt::format("{}: {}, the source gives {}", difference->path, difference->found,
                             difference->expected));
}

Result<std::int64_t> compare_source(const std::filesystem::path& folder,
                                    const PreparedManifest& manifest, const Checkpoint& source,
                                    Tasks& tasks, Executor& executor) {
  FEWBIT_TRY(const Identified identified, identify(source));
  FEWBIT_TRY(const std::vector<SourceFile> files, source_files(source, source_names(manifest)));
  const std::string hash = source_hash(files);
  if (hash != manifest.source_hash) {
    return differs(source.directory().string(),
                   fmt::format("not the source: its files have hash {}, the prepared model was "
                               "made from {}",
                               hash, manifest.source_hash));
  }
  FEWBIT_TRY(const PreparePlan plan, plan_again(source, identified, manifest));
  FEWBIT_TRY(compare_manifest(folder, manifest, plan, source));
  FEWBIT_TRY(compare_rest(folder, plan, source));
  std::int64_t experts = 0;
  for (const PlannedLayer& layer : plan.layers) {
    FEWBIT_TRY(const LayerPair pair, pair_layer(folder, layer));
    const std::uint64_t each = pair.memory.mapped_bytes / pair.memory.experts.size();
    FEWBIT_TRY(tasks.run(executor, pair.memory.experts.size(),
                         [&](std::size_t e, int worker) -> Result<void> {
                           FEWBIT_TRY(compare_expert(pair, e, source));
                           tasks.add(each, worker);
                           return {};
                         }));
    experts += layer.info.plan.experts;
  }
  return experts;
}

}  // namespace

Result<VerifyReport> verify_prepared(const std::filesystem::path& folder, const Checkpoint* source,
                                     const ProgressFn& progress, Executor& executor) {
  FEWBIT_TRY(const PreparedModel model, PreparedModel::open(folder));
  const PreparedManifest& manifest = model.manifest();
  VerifyReport report;
  report.files = std::ssize(manifest.files);
  for (const PreparedFile& file : manifest.files) report.bytes += file.bytes;
  Tasks tasks(progress, source != nullptr ? 2 * report.bytes : report.bytes);
  FEWBIT_TRY(
      tasks.run(executor, manifest.files.size(), [&](std::size_t i, int worker) -> Result<void> {
        const PreparedFile& file = manifest.files[i];
        FEWBIT_TRY(const std::string hash, hash_file(folder / file.name, [&](std::uint64_t bytes) {
                     return tasks.add(bytes, worker);
                   }));
        if (hash == file.hash) return {};
        return Error{ErrorCode::corrupt,
                     fmt::format("content hash is {}, {} says {}", hash, manifest_name, file.hash),
                     (folder / file.name).string()};
      }));
  if (source != nullptr) {
    FEWBIT_TRY(report.experts, compare_source(folder, manifest, *source, tasks, executor));
  } else {
    FEWBIT_TRY(check_against_config(folder, manifest));
  }
  return report;
}

}  // namespace fewbit
