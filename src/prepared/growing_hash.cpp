// SPDX-License-Identifier: Apache-2.0
#include "prepared/growing_hash.hpp"

#include <algorithm>
#include <utility>

namespace fewbit {

GrowingHash::GrowingHash(const OutputFile& file, std::uint64_t bytes, std::vector<Part> parts)
    : file_(&file), bytes_(bytes), parts_(std::move(parts)) {
  std::ranges::sort(parts_, {}, &Part::begin);
}

Result<void> GrowingHash::advance(const Progress& progress, std::span<const Written> written) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return {};
  return go_on(progress, written);
}

Result<std::string> GrowingHash::finish(const Progress& progress,
                                        std::span<const Written> written) {
  const std::scoped_lock lock(mutex_);
  FEWBIT_TRY(go_on(progress, written));
  return hash_->text();
}

Result<void> GrowingHash::go_on(const Progress& progress, std::span<const Written> written) {
  if (!hash_) {
    FEWBIT_TRY(hash_, ContentHash::create());
  }
  for (; next_ < parts_.size(); ++next_) {
    const Part& part = parts_[next_];
    if (!progress.is_done(part.task)) return read_to(part.begin, progress);
    const auto own = std::ranges::find(written, part.begin, &Written::begin);
    // Of two parts that begin here one is empty, and may have stood for the other.
    if (own == written.end() || at_ > part.begin) continue;
    FEWBIT_TRY(read_to(part.begin, progress));
    hash_->add(own->bytes);
    at_ += own->bytes.size();
  }
  return read_to(bytes_, progress);
}

// Not mapped: of a file read in many ranges, pages around them would stay.
Result<void> GrowingHash::read_to(std::uint64_t end, const Progress& progress) {
  constexpr std::uint64_t piece_bytes = 1 << 18;  // stays in the second-level cache
  while (at_ < end) {
    if (progress.stopped()) return Error{ErrorCode::cancelled, "stopped while hashing", {}};
    if (buffer_.size() == 0) {
      FEWBIT_TRY(buffer_, AlignedBuffer::allocate(piece_bytes));
    }
    const auto piece = buffer_.span().first(std::min(piece_bytes, end - at_));
    FEWBIT_TRY(file_->read(piece, at_));
    hash_->add(piece);
    at_ += piece.size();
  }
  return {};
}

}  // namespace fewbit
