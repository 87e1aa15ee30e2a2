// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <mutex>
#include <set>
#include <system_error>
#include <utility>

#include "checkpoint/leftovers.hpp"
#include "checkpoint/mapped_file.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/relative_name.hpp"
#include "checkpoint/shard_plan.hpp"
#include "checkpoint/system_error.hpp"
#include "checkpoint/target_path.hpp"
#include "checkpoint/tensor_files.hpp"
#include "core/quote.hpp"
#include "fewbit/checkpoint.hpp"

namespace fewbit {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view index_name = "model.safetensors.index.json";

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

Result<void> write_whole(const fs::path& path, std::string_view content) {
  FEWBIT_TRY(auto file, OutputFile::create(path, content.size()));
  FEWBIT_TRY(file.write(bytes_of(content), 0));
  FEWBIT_TRY(file.sync());
  return file.close();
}

Result<fs::path> new_target(const fs::path& directory) {
  FEWBIT_TRY(fs::path target, target_path(directory));
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(target, ignored))) {
    return Error{ErrorCode::invalid_argument,
                 "exists already; a checkpoint is written to a new folder", target.string()};
  }
  return target;
}

}  // namespace

struct CheckpointWriter::State {
  fs::path target;
  fs::path folder;      // temporary, beside the target; empty once it is gone
  FileDescriptor lock;  // tells others that the folder is in use
  ShardPlan plan;
  TensorFiles data;  // one file a shard
  std::mutex mutex;  // guards what follows
  std::set<std::string, std::less<>> small_files;

  State(fs::path to, ShardPlan planned)
      : target(std::move(to)), plan(std::move(planned)), data(plan.tensors, target.string()) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (folder.empty()) return;
    data.abandon();
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  // The folder is ours from the moment it exists, so that every failure after it removes it.
  Result<void> make_folder() {
    const fs::path path = partial_folder(target);
    std::error_code failure;
    if (!fs::create_directory(path, failure)) {
      return system_error("create", failure ? failure.value() : EEXIST, path);
    }
    folder = path;
    lock = lock_folder(folder);
    return mark_unfinished(folder);
  }

  Result<void> create_shards() {
    std::uint64_t bytes = 0;
    for (const PlannedShard& shard : plan.shards) bytes += shard.file_bytes;
    FEWBIT_TRY(check_room(folder, bytes));
    for (const PlannedShard& shard : plan.shards) {
      FEWBIT_TRY(auto file, OutputFile::create(folder / shard.file, shard.file_bytes));
      FEWBIT_TRY(file.write(bytes_of(shard.header), 0));
      data.add_file(std::move(file));
    }
    return {};
  }

  Result<void> write_small(std::string_view name, std::string_view content) const {
    const fs::path path = folder / name;
    auto done = write_whole(path, content);
    std::error_code ignored;
    // Half a file must not be published by a later finish().
    if (!done) fs::remove(path, ignored);
    return done;
  }
};

CheckpointWriter::CheckpointWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter& CheckpointWriter::operator=(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

Result<CheckpointWriter> CheckpointWriter::create(const fs::path& directory,
                                                  std::vector<TensorSpec> tensors,
                                                  const WriterOptions& options) {
  FEWBIT_TRY(fs::path target, new_target(directory));
  FEWBIT_TRY(ShardPlan plan, plan_shards(std::move(tensors), options));
  auto state = std::make_unique<State>(std::move(target), std::move(plan));
  FEWBIT_TRY(state->make_folder());
  FEWBIT_TRY(state->create_shards());
  return CheckpointWriter(std::move(state));
}

Result<void> CheckpointWriter::write(std::string_view name, std::span<const std::byte> bytes,
                                     std::uint64_t offset) {
  return state_->data.write(name, bytes, offset);
}

Result<void> CheckpointWriter::write_file(std::string_view name, std::string_view content) {
  FEWBIT_TRY(state_->data.check_open());
  const fs::path path(name);
  const bool plain = stays_below(name) && path.filename() == path && name != ".";
  const auto& shards = state_->plan.shards;
  const bool taken = name == index_name ||
                     std::any_of(shards.begin(), shards.end(),
                                 [&](const PlannedShard& shard) { return shard.file == name; });
  if (!plain || taken) {
    return Error{ErrorCode::invalid_argument,
                 plain ? quote(name) + " is a file of the checkpoint itself"
                       : "expected a file name without folders, found " + quote(name),
                 state_->target.string()};
  }
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->small_files.emplace(name).second) {
      return Error{ErrorCode::invalid_argument, quote(name) + " was written already",
                   state_->target.string()};
    }
  }
  return state_->write_small(name, content);
}

Result<void> CheckpointWriter::copy_file(const fs::path& source) {
  FEWBIT_TRY(const auto file, MappedFile::open(source));
  const auto bytes = file->bytes();
  return write_file(source.filename().string(),
                    {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Result<void> CheckpointWriter::finish() {
  FEWBIT_TRY(state_->data.finish());
  if (state_->plan.shards.size() > 1) {
    FEWBIT_TRY(state_->write_small(index_name, index_of(state_->plan).dump(2) + "\n"));
  }
  FEWBIT_TRY(unmark_unfinished(state_->folder));
  FEWBIT_TRY(sync_folder(state_->folder));
  FEWBIT_TRY(rename_to_new(state_->folder, state_->target));
  state_->folder.clear();
  return sync_folder(state_->target.parent_path());
}

}  // namespace fewbit
