// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "checkpoint/mapped_file.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/relative_name.hpp"
#include "checkpoint/shard_index.hpp"
#include "checkpoint/shard_plan.hpp"
#include "checkpoint/system_error.hpp"
#include "checkpoint/written_ranges.hpp"
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

// "out/" is "out"; a bare name lies in the current folder.
Result<fs::path> target_path(const fs::path& directory) {
  fs::path target = directory.lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  const std::string name = target.filename().string();
  if (name.empty() || name == "." || name == "..") {
    return Error{ErrorCode::invalid_argument, "expected the name of a new folder",
                 directory.string()};
  }
  if (!target.has_parent_path()) target = fs::path(".") / target;
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
  fs::path folder;  // temporary, beside the target; empty once it is gone
  ShardPlan plan;
  std::vector<OutputFile> files;  // one a shard
  std::unordered_map<std::string_view, std::size_t> tensor_by_name;
  bool accepts_data = true;  // until finish() begins to close
  std::mutex mutex;          // guards what follows
  std::vector<WrittenRanges> written;
  std::set<std::string, std::less<>> small_files;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (folder.empty()) return;
    files.clear();
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  // The folder is ours from the moment it exists, so that every failure after it removes it.
  Result<void> make_folder() {
    const fs::path path = fmt::format("{}.partial.{}", target.string(), ::getpid());
    std::error_code failure;
    if (!fs::create_directory(path, failure)) {
      return system_error("create", failure ? failure.value() : EEXIST, path);
    }
    folder = path;
    return {};
  }

  Result<void> create_shards() {
    for (const PlannedShard& shard : plan.shards) {
      FEWBIT_TRY(auto file, OutputFile::create(folder / shard.file, shard.file_bytes));
      FEWBIT_TRY(file.write(bytes_of(shard.header), 0));
      files.push_back(std::move(file));
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

  Result<void> check_accepts_data() const {
    if (accepts_data) return {};
    return Error{ErrorCode::invalid_argument, "finish() was called already", target.string()};
  }

  Result<void> check_complete() const {
    std::vector<std::string> missing;
    for (std::size_t i = 0; i < plan.tensors.size(); ++i) {
      if (written[i].bytes() == plan.tensors[i].bytes) continue;
      missing.push_back(fmt::format("{} ({} of {} bytes, the first missing is {})",
                                    quote(plan.tensors[i].name), written[i].bytes(),
                                    plan.tensors[i].bytes, written[i].first_missing()));
    }
    if (missing.empty()) return {};
    return Error{ErrorCode::inconsistent,
                 fmt::format("{} of {} tensors were not written in full: {}", missing.size(),
                             plan.tensors.size(), short_list(missing)),
                 target.string()};
  }
};

CheckpointWriter::CheckpointWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
CheckpointWriter::CheckpointWriter(CheckpointWriter&&) noexcept = default;
CheckpointWriter& CheckpointWriter::operator=(CheckpointWriter&&) noexcept = default;
CheckpointWriter::~CheckpointWriter() = default;

Result<CheckpointWriter> CheckpointWriter::create(const fs::path& directory,
                                                  std::vector<TensorSpec> tensors,
                                                  const WriterOptions& options) {
  auto state = std::make_unique<State>();
  FEWBIT_TRY(state->target, target_path(directory));
  FEWBIT_TRY(state->plan, plan_shards(std::move(tensors), options));
  state->written.resize(state->plan.tensors.size());
  for (std::size_t i = 0; i < state->plan.tensors.size(); ++i) {
    state->tensor_by_name.emplace(state->plan.tensors[i].name, i);
  }
  FEWBIT_TRY(state->make_folder());
  FEWBIT_TRY(state->create_shards());
  return CheckpointWriter(std::move(state));
}

Result<void> CheckpointWriter::write(std::string_view name, std::span<const std::byte> bytes,
                                     std::uint64_t offset) {
  const auto at = state_->tensor_by_name.find(name);
  if (at == state_->tensor_by_name.end()) {
    return Error{ErrorCode::not_found, "no such tensor was declared", "tensor " + quote(name)};
  }
  const TensorInfo& info = state_->plan.tensors[at->second];
  if (offset > info.bytes || bytes.size() > info.bytes - offset) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} bytes at {} do not fit into {} {} of {} bytes", bytes.size(),
                             offset, dtype_name(info.dtype), shape_text(info.shape), info.bytes),
                 "tensor " + quote(name)};
  }
  FEWBIT_TRY(state_->check_accepts_data());
  FEWBIT_TRY(
      state_->files[static_cast<std::size_t>(info.shard)].write(bytes, info.file_offset + offset));
  const std::lock_guard lock(state_->mutex);
  state_->written[at->second].add(offset, offset + bytes.size());
  return {};
}

Result<void> CheckpointWriter::write_file(std::string_view name, std::string_view content) {
  FEWBIT_TRY(state_->check_accepts_data());
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
  FEWBIT_TRY(state_->check_accepts_data());
  FEWBIT_TRY(state_->check_complete());
  state_->accepts_data = false;
  for (OutputFile& file : state_->files) {
    FEWBIT_TRY(file.sync());
    FEWBIT_TRY(file.close());
  }
  state_->files.clear();
  if (state_->plan.shards.size() > 1) {
    FEWBIT_TRY(state_->write_small(index_name, index_of(state_->plan).dump(2) + "\n"));
  }
  FEWBIT_TRY(sync_folder(state_->folder));
  FEWBIT_TRY(rename_to_new(state_->folder, state_->target));
  state_->folder.clear();
  return sync_folder(state_->target.parent_path());
}

}  // namespace fewbit
