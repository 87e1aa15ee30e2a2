// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "checkpoint/output_file.hpp"
#include "checkpoint/written_ranges.hpp"
#include "fewbit/checkpoint.hpp"
#include "fewbit/result.hpp"

namespace fewbit {

// The data of declared tensors on its way into files, in any order and in pieces; knows what is
// still missing.
class TensorFiles {
 public:
  // tensors: file_offset, bytes and shard are set; shard counts the files in the order of add_file.
  // where: names the checkpoint in errors.
  TensorFiles(std::vector<TensorInfo> tensors, std::string where);

  void add_file(OutputFile file) { files_.push_back(std::move(file)); }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }

  // bytes go to [offset, offset + size) of the tensor's data. Thread-safe.
  // Errors: not_found (no such tensor), invalid_argument (beyond its end, after finish), io.
  Result<void> write(std::string_view name, std::span<const std::byte> bytes, std::uint64_t offset);
  // Error invalid_argument after finish().
  Result<void> check_open() const;
  // Flushes and closes all files. Error inconsistent when a tensor was not written in full, names
  // them; then writing may go on.
  Result<void> finish();
  // Closes all files as they are.
  void abandon() { files_.clear(); }

 private:
  Result<void> check_complete() const;

  std::vector<TensorInfo> tensors_;
  std::string where_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
  std::vector<OutputFile> files_;
  bool open_ = true;
  std::mutex mutex_;  // guards written_
  std::vector<WrittenRanges> written_;
};

}  // namespace fewbit
