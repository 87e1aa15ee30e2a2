// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "fewbit/result.hpp"

namespace fewbit {

// A regular file mapped read-only for as long as the object lives. An empty file is an empty span.
//
// The size is fixed when the file is opened. When another process truncates the file afterwards, a
// read behind its new end raises SIGBUS, as for every mapped file: nothing in user space can make
// that an error without copying the data. A file that is replaced by rename, as careful writers do,
// stays readable.
class MappedFile {
 public:
  // Errors: not_found, io (with the system's reason), invalid_argument (no regular file).
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::filesystem::path& path() const { return path_; }

  // The path of the open file that is mapped at this address; nullptr when there is none, or more
  // are open than are noted (4096). May be called in a signal handler.
  static const char* path_at(const void* address);

  // Drops the pages of [offset, offset + size) from this process's memory, and those around them
  // that came with them; they are read again when touched. Ranges past the end are cut.
  void release(std::uint64_t offset, std::uint64_t size) const;
  // Mapped bytes that are read soon: fetches the pages that they touch, and none around them,
  // without waiting. Without it the first touch waits, and fetches what stands around too.
  static void will_read(std::span<const std::byte> bytes);
  // Waits until they are in this process's memory, where the system can (Linux 5.14).
  static void map_pages(std::span<const std::byte> bytes);

 private:
  MappedFile(std::filesystem::path path, std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::span<const std::byte> bytes_;
};

}  // namespace fewbit
