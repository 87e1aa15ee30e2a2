// SPDX-License-Identifier: Apache-2.0
#include "prepared/source_files.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <limits>
#include <optional>

#include "checkpoint/mapped_file.hpp"
#include "checkpoint/prepared_folder.hpp"
#include "checkpoint/side_files.hpp"
#include "checkpoint/system_error.hpp"
#include "core/quote.hpp"
#include "core/utf8.hpp"
#include "prepared/content_hash.hpp"
#include "scheme/kept_files.hpp"

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

// "2026-01-31 23:59:59.000000001 UTC"
std::string time_text(std::int64_t since_1970) {
  constexpr std::int64_t second = 1'000'000'000;
  const std::int64_t part = (since_1970 % second + second) % second;
  const auto seconds = static_cast<std::time_t>((since_1970 - part) / second);
  struct tm fields = {};
  if (::gmtime_r(&seconds, &fields) == nullptr) return fmt::format("{} ns", since_1970);
  return fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:09} UTC", fields.tm_year + 1900,
                     fields.tm_mon + 1, fields.tm_mday, fields.tm_hour, fields.tm_min,
                     fields.tm_sec, part);
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

std::vector<std::pair<std::string, std::string>> source_facts(const SourceFile& file) {
  return {{"bytes", std::to_string(file.bytes)},
          {"modified at", time_text(file.modified)},
          {"changed at", time_text(file.changed)},
          {file.weights ? "hash of the header" : "hash", file.hash}};
}

Result<std::vector<SourceFile>> source_files(const Checkpoint& checkpoint,
                                             const std::vector<std::string>& also) {
  std::vector<SourceFile> files;
  const auto shards = checkpoint.shards();
  for (std::size_t i = 0; i < shards.size(); ++i) {
    FEWBIT_TRY(SourceFile file, describe(shards[i], header_bytes(checkpoint, i)));
    files.push_back(std::move(file));
  }
  FEWBIT_TRY(const auto sides, side_files_with(checkpoint.directory(), is_kept_file));
  for (const std::filesystem::path& side : sides) {
    const std::string name = side.filename().string();
    if (!is_kept_file(name) && std::ranges::find(also, name) == also.end()) continue;
    FEWBIT_TRY(SourceFile file, describe(side, std::nullopt));
    files.push_back(std::move(file));
  }
  return files;
}

Result<void> check_unchanged(const std::vector<SourceFile>& files) {
  for (const SourceFile& file : files) {
    FEWBIT_TRY(const struct stat status, status_of(file.path));
    SourceFile now = file;
    now.bytes = static_cast<std::uint64_t>(status.st_size);
    now.modified = nanoseconds(status.st_mtim);
    now.changed = nanoseconds(status.st_ctim);
    const auto before = source_facts(file);
    const auto after = source_facts(now);
    std::string text;
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (before[i] == after[i]) continue;
      text += fmt::format("{}{} {}, now {}", text.empty() ? "" : "; ", before[i].first,
                          before[i].second, after[i].second);
    }
    if (text.empty()) continue;
    return Error{ErrorCode::inconsistent, "has changed while the model was prepared: " + text,
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
