// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/tensor_files.hpp"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/shard_index.hpp"
#include "core/quote.hpp"

namespace fewbit {

TensorFiles::TensorFiles(std::vector<TensorInfo> tensors, std::string where)
    : tensors_(std::move(tensors)), where_(std::move(where)), written_(tensors_.size()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

Result<void> TensorFiles::check_open() const {
  if (open_) return {};
  return Error{ErrorCode::invalid_argument, "finish() was called already", where_};
}

Result<void> TensorFiles::write(std::string_view name, std::span<const std::byte> bytes,
                                std::uint64_t offset) {
  const auto at = by_name_.find(name);
  if (at == by_name_.end()) {
    return Error{ErrorCode::not_found, "no such tensor was declared", "tensor " + quote(name)};
  }
  const TensorInfo& info = tensors_[at->second];
  if (offset > info.bytes || bytes.size() > info.bytes - offset) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("{} bytes at {} do not fit into {} {} of {} bytes", bytes.size(),
                             offset, dtype_name(info.dtype), shape_text(info.shape), info.bytes),
                 "tensor " + quote(name)};
  }
  FEWBIT_TRY(check_open());
  FEWBIT_TRY(files_[static_cast<std::size_t>(info.shard)].write(bytes, info.file_offset + offset));
  const std::lock_guard lock(mutex_);
  written_[at->second].add(offset, offset + bytes.size());
  return {};
}

Result<void> TensorFiles::check_complete() const {
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (written_[i].bytes() == tensors_[i].bytes) continue;
    missing.push_back(fmt::format("{} ({} of {} bytes, the first missing is {})",
                                  quote(tensors_[i].name), written_[i].bytes(), tensors_[i].bytes,
                                  written_[i].first_missing()));
  }
  if (missing.empty()) return {};
  return Error{ErrorCode::inconsistent,
               fmt::format("{} of {} tensors were not written in full: {}", missing.size(),
                           tensors_.size(), short_list(missing)),
               where_};
}

Result<void> TensorFiles::finish() {
  FEWBIT_TRY(check_open());
  FEWBIT_TRY(check_complete());
  open_ = false;
  for (OutputFile& file : files_) {
    FEWBIT_TRY(file.sync());
    FEWBIT_TRY(file.close());
  }
  files_.clear();
  return {};
}

}  // namespace fewbit
