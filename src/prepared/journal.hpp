// SPDX-License-Identifier: Apache-2.0
// What an unfinished prepared model was begun with, and which of its tasks are done, with a hash of
// what each has written. One file, locked by the run that works on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/file_descriptor.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// Named facts in order: options and source files.
using JobIdentity = std::vector<std::pair<std::string, std::string>>;

struct FinishedTask {
  std::int64_t task = 0;
  std::uint64_t hash = 0;  // of its bytes (content_hash.hpp: hash_on)
  bool operator==(const FinishedTask&) const = default;
};

class Journal {
 public:
  // Opens or creates it, and locks it. Errors: io (another run holds the lock; the system's
  // reason).
  static Result<Journal> open(const std::filesystem::path& path);

  // What an earlier run has written. Error corrupt names line and reason; a last line that was not
  // written in full counts for nothing.
  struct Content {
    bool begun = false;
    JobIdentity identity;
    std::vector<FinishedTask> done;  // of a task done twice the last one counts
  };
  Result<Content> read() const;

  // Nothing was ever begun.
  bool is_empty() const;
  // Begins as no journal does, of whatever version and however cut.
  bool is_foreign() const;
  // Empties it and writes the identity, durably; after an error it is empty.
  Result<void> begin(const JobIdentity& identity);
  // Cuts what was not written in full, then appends behind it.
  Result<void> resume();
  // Durable when it returns. The data of these tasks must be so before.
  Result<void> append(std::span<const FinishedTask> done);
  Result<void> remove();

 private:
  Journal(std::filesystem::path path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}
  Result<void> write(std::string_view text);

  std::filesystem::path path_;
  FileDescriptor file_;
};

// "backend: begun with "a", now "b"; …": all facts that differ; empty when none does.
std::string identity_difference(const JobIdentity& begun, const JobIdentity& now);

}  // namespace fewbit
