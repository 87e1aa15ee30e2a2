// SPDX-License-Identifier: Apache-2.0
#include "prepared/source_files.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "checkpoint/mapped_file.hpp"
#include "checkpoint/side_files.hpp"
#include "checkpoint/system_error.hpp"
#include "prepared/content_hash.hpp"

namespace fewbit {
namespace {

// The length and the JSON in front of the data; the file was checked when it was opened.
std::span<const std::byte> header_of(std::span<const std::byte> file) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8 && i < file.size(); ++i) {
    length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  }
  return file.first(std::min<std::uint64_t>(file.size(), 8 + length));
}

std::int64_t modified(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

Result<struct stat> status_of(const std::filesystem::path& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return system_error("read the size of", errno, path);
  return status;
}

Result<SourceFile> describe(const std::filesystem::path& path, bool weights) {
  FEWBIT_TRY(const struct stat status, status_of(path));
  FEWBIT_TRY(const auto file, MappedFile::open(path));
  SourceFile out;
  out.path = path;
  out.name = path.filename().string();
  out.weights = weights;
  out.bytes = file->bytes().size();
  out.modified = modified(status);
  out.hash = hash_bytes(weights ? header_of(file->bytes()) : file->bytes());
  return out;
}

}  // namespace

Result<std::vector<SourceFile>> source_files(const Checkpoint& checkpoint) {
  std::vector<SourceFile> files;
  for (const std::filesystem::path& shard : checkpoint.shards()) {
    FEWBIT_TRY(SourceFile file, describe(shard, true));
    files.push_back(std::move(file));
  }
  FEWBIT_TRY(const auto sides, side_files(checkpoint.directory()));
  for (const std::filesystem::path& side : sides) {
    FEWBIT_TRY(SourceFile file, describe(side, false));
    files.push_back(std::move(file));
  }
  return files;
}

Result<void> check_unchanged(const std::vector<SourceFile>& files) {
  for (const SourceFile& file : files) {
    FEWBIT_TRY(const struct stat status, status_of(file.path));
    const auto bytes = static_cast<std::uint64_t>(status.st_size);
    if (bytes == file.bytes && modified(status) == file.modified) continue;
    return Error{
        ErrorCode::inconsistent,
        fmt::format("has changed while the model was prepared: {} bytes, changed at {} ns; it had "
                    "{}, changed at {} ns",
                    bytes, modified(status), file.bytes, file.modified),
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
