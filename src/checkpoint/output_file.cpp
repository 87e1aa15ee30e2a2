// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "checkpoint/system_error.hpp"
#include "core/checked.hpp"

namespace fewbit {
namespace {

std::string reserve_action(std::uint64_t bytes) { return fmt::format("reserve {} bytes", bytes); }

// In memory a place is reserved by giving it out page by page, a quarter of the time that preparing
// takes, by one thread before the others begin.
bool is_in_memory(const struct statfs& system) { return system.f_type == TMPFS_MAGIC; }

Result<void> check_room(const struct statfs& system, std::uint64_t bytes,
                        const std::filesystem::path& path) {
  const bool limited = system.f_blocks != 0;
  const auto room = checked_mul(static_cast<std::uint64_t>(system.f_bavail),
                                static_cast<std::uint64_t>(system.f_bsize));
  if (!is_in_memory(system) || !limited || !room || bytes <= *room) return {};
  return system_error(reserve_action(bytes), ENOSPC, path);
}

Result<void> reserve(int file, std::uint64_t bytes, const std::filesystem::path& path) {
  const auto size = static_cast<off_t>(bytes);
  struct statfs system = {};
  const bool in_memory = ::fstatfs(file, &system) == 0 && is_in_memory(system);
  if (in_memory) FEWBIT_TRY(check_room(system, bytes, path));
  // Not posix_fallocate: where the file system has no such call, that writes the whole file.
  if (size == 0 || (!in_memory && ::fallocate(file, 0, 0, size) == 0)) return {};
  if (!in_memory && errno != EOPNOTSUPP && errno != ENOSYS) {
    return system_error(reserve_action(bytes), errno, path);
  }
  if (::ftruncate(file, size) != 0) return system_error(reserve_action(bytes), errno, path);
  return {};
}

}  // namespace

OutputFile::OutputFile(std::filesystem::path path, FileDescriptor file)
    : path_(std::move(path)), file_(std::move(file)) {}

Result<OutputFile> OutputFile::create(std::filesystem::path path, std::uint64_t bytes) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0) return system_error("create", errno, path);
  if (const auto reserved = reserve(file.get(), bytes, path); !reserved) {
    ::unlink(path.c_str());
    return reserved.error();
  }
  return OutputFile(std::move(path), std::move(file));
}

Result<OutputFile> OutputFile::reopen(std::filesystem::path path, std::uint64_t bytes) {
  FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (file.get() < 0) return system_error("open", errno, path);
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return system_error("read the size", errno, path);
  if (!S_ISREG(status.st_mode) || static_cast<std::uint64_t>(status.st_size) != bytes) {
    return Error{ErrorCode::corrupt,
                 fmt::format("{} bytes, expected a file of {}", status.st_size, bytes),
                 path.string()};
  }
  return OutputFile(std::move(path), std::move(file));
}

Result<void> OutputFile::write(std::span<const std::byte> bytes, std::uint64_t offset) const {
  constexpr std::size_t most_at_once = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(file_.get(), bytes.data(), std::min(bytes.size(), most_at_once),
                 static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return system_error(fmt::format("write {} bytes at {}", bytes.size(), offset),
                          written < 0 ? errno : EIO, path_);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Result<void> OutputFile::read(std::span<std::byte> bytes, std::uint64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t got =
        ::pread(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      return system_error(fmt::format("read {} bytes at {}", bytes.size(), offset),
                          got < 0 ? errno : EIO, path_);
    }
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
  return {};
}

Result<void> OutputFile::sync() const {
  if (::fsync(file_.get()) != 0) return system_error("flush", errno, path_);
  return {};
}

Result<void> OutputFile::sync_data() const {
  if (::fdatasync(file_.get()) != 0) return system_error("flush", errno, path_);
  return {};
}

Result<void> OutputFile::close() {
  // Some network file systems report a failed write only here.
  if (::close(file_.release()) != 0) return system_error("close", errno, path_);
  return {};
}

Result<void> check_room(const std::filesystem::path& folder, std::uint64_t bytes) {
  struct statfs system = {};
  if (::statfs(folder.c_str(), &system) != 0) return system_error("look at", errno, folder);
  return check_room(system, bytes, folder);
}

Result<void> sync_folder(const std::filesystem::path& folder) {
  const FileDescriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0) return system_error("open", errno, folder);
  // File systems that can't flush a folder say EINVAL; there is nothing to wait for then.
  if (::fsync(file.get()) != 0 && errno != EINVAL) return system_error("flush", errno, folder);
  return {};
}

Result<void> rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return {};
  const std::string action = "rename " + from.string() + " to";
  if (errno != EINVAL && errno != ENOSYS) return system_error(action, errno, to);
  // The file system has no such call. A plain rename replaces nothing but an empty folder.
  std::error_code failure;
  if (std::filesystem::exists(std::filesystem::symlink_status(to, failure))) {
    return system_error(action, EEXIST, to);
  }
  std::filesystem::rename(from, to, failure);
  if (failure) return system_error(action, failure.value(), to);
  return {};
}

}  // namespace fewbit
