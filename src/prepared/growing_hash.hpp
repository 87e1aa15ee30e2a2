// SPDX-License-Identifier: Apache-2.0
// The content hash of a file whose parts are written in any order, taken while it grows: as far as
// it is whole from its beginning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/output_file.hpp"
#include "core/aligned_buffer.hpp"
#include "prepared/content_hash.hpp"

namespace fewbit {

class GrowingHash {
 public:
  // What one task writes; other bytes of the file are written before all tasks.
  struct Part {
    std::uint64_t begin = 0;
    std::int64_t task = 0;
  };
  struct Progress {
    std::function<bool(std::int64_t task)> is_done;
    std::function<bool()> stopped;
  };
  // Bytes of a part that are also in memory.
  struct Written {
    std::uint64_t begin = 0;
    std::span<const std::byte> bytes;
  };
  // file: of so many bytes; borrowed. parts: in any order.
  GrowingHash(const OutputFile& file, std::uint64_t bytes, std::vector<Part> parts);

  // Goes on to the first part that is not done, unless another thread is at it; reads what is not
  // among `written` from the file. Errors: as MappedFile::open; cancelled: stopped.
  Result<void> advance(const Progress& progress, std::span<const Written> written);
  // The same to the end, waiting for the other thread. Precondition: all is done.
  Result<std::string> finish(const Progress& progress, std::span<const Written> written);

 private:
  Result<void> go_on(const Progress& progress, std::span<const Written> written);
  Result<void> read_to(std::uint64_t end, const Progress& progress);

  const OutputFile* file_;
  std::uint64_t bytes_;
  std::vector<Part> parts_;
  std::mutex mutex_;  // guards all below
  AlignedBuffer buffer_;
  std::optional<ContentHash> hash_;
  std::size_t next_ = 0;  // of parts_
  std::uint64_t at_ = 0;
};

}  // namespace fewbit
