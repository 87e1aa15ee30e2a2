// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "checkpoint/file_descriptor.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// A new file of known size, written at any place. Errors name the file and the system's reason.
class OutputFile {
 public:
  // Reserves the space at once where the file system can: a full disk shows before the work. In
  // memory (tmpfs) it is only compared with what is free.
  static Result<OutputFile> create(std::filesystem::path path, std::uint64_t bytes);

  // The file that create() made in an earlier run. Error corrupt: another size (both numbers).
  static Result<OutputFile> reopen(std::filesystem::path path, std::uint64_t bytes);

  // Thread-safe. The caller keeps to the size.
  Result<void> write(std::span<const std::byte> bytes, std::uint64_t offset) const;
  // What was written. Error io too where the file ends before.
  Result<void> read(std::span<std::byte> bytes, std::uint64_t offset) const;
  // Waits until the data is on the device.
  Result<void> sync() const;
  // As sync, without the times of the file.
  Result<void> sync_data() const;
  Result<void> close();

 private:
  OutputFile(std::filesystem::path path, FileDescriptor file);

  std::filesystem::path path_;
  FileDescriptor file_;
};

// Before several files are created: error io where they lie in memory (tmpfs), which has less room
// than `bytes`; other file systems tell when the files are created.
Result<void> check_room(const std::filesystem::path& folder, std::uint64_t bytes);

// Makes new names in a folder durable.
Result<void> sync_folder(const std::filesystem::path& folder);

// Renames a folder; never onto something that exists.
Result<void> rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace fewbit
