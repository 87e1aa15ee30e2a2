// SPDX-License-Identifier: Apache-2.0
#include "prepared/source_files.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>

#include "checkpoint/mapped_file.hpp"
#include "checkpoint/prepared_folder.hpp"
#include "checkpoint/side_files.hpp"
#include "checkpoint/system_error.hpp"
#include "core/quote.hpp"
#include "core/utf8.hpp"
#include "prepared/content_hash.hpp"

namespace fewbit {
namespace {

// What stands in front of the data of a shard.
std::uint64_t header_bytes(const Checkpoint& checkpoint, std::size_t shard) {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const TensorInfo& info : checkpoint.tensors()) {
    if (static_cast<std::size_t>(info.shard) == shard) first = std::min(first, info.file_offset);
  }
  return first;
}

std::int64_t nanoseconds(const struct timespec& time) {
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

Result<struct stat> status_of(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return system_error("read the size", errno, path);
  return status;
}

// header: of a shard; empty for a side file.
Result<SourceFile> describe(const std::filesystem::path& path,
                            std::optional<std::uint64_t> header) {
  FEWBIT_TRY(const struct stat status, status_of(path));
  FEWBIT_TRY(const auto file, MappedFile::open(path));
  SourceFile out;
  out.path = path;
  out.name = path.filename().string();
  if (utf8_valid_prefix(out.name) != out.name.size()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the file name {} is no UTF-8, which {} can't hold", quote(out.name),
                             prepared_manifest_name),
                 path.parent_path().string()};
  }
  out.weights = header.has_value();
  out.bytes = file->bytes().size();
  out.modified = nanoseconds(status.st_mtim);
  out.changed = nanoseconds(status.st_ctim);
  out.hash = hash_bytes(file->bytes().first(
      std::min<std::uint64_t>(file->bytes().size(), header.value_or(file->bytes().size()))));
  return out;
}

}  // namespace

std::string source_facts(const SourceFile& file) {
  return fmt::format("{} bytes, modified at {} ns, changed at {} ns, hash {}", file.bytes,
                     file.modified, file.changed, file.hash);
}

Result<std::vector<SourceFile>> source_files(const Checkpoint& checkpoint) {
  std::vector<SourceFile> files;
  const auto shards = checkpoint.shards();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    FEWBIT_TRY(SourceFile file, describe(shards[i], header_bytes(checkpoint, i)));
    files.push_back(std::move(file));
  }
  FEWBIT_TRY(const auto sides, side_files(checkpoint.directory()));
  for (const std::filesystem::path& side : sides) {
    FEWBIT_TRY(SourceFile file, describe(side, std::nullopt));
    files.push_back(std::move(file));
  }
  return files;
}

Result<void> check_unchanged(const std::vector<SourceFile>& files) {
  for (const SourceFile& file : files) {
    FEWBIT_TRY(const struct stat status, status_of(file.path));
    const auto bytes = static_cast<std::uint64_t>(status.st_size);
    const std::int64_t modified = nanoseconds(status.st_mtim);
    const std::int64_t changed = nanoseconds(status.st_ctim);
    if (bytes == file.bytes && modified == file.modified && changed == file.changed) continue;
    return Error{
        ErrorCode::inconsistent,
        fmt::format(
            "has changed while the model was prepared: {} bytes, modified at {} ns, changed "
            "at {} ns; it had {}, modified at {} ns, changed at {} ns",
            bytes, modified, changed, file.bytes, file.modified, file.changed),
        file.path.string()};
  }
  return {};
}

std::string source_hash(const std::vector<SourceFile>& files) {
  std::string text;
  for (const SourceFile& file : files) {
    text += fmt::format("{}\n{}\n{}\n", file.name, file.bytes, file.hash);
  }
  return hash_bytes(std::as_bytes(std::span(text)));
}

}  // namespace fewbit
