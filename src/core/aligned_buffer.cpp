// SPDX-License-Identifier: Apache-2.0
#include "core/aligned_buffer.hpp"

#include <cstdlib>
#include <limits>
#include <string>
#include <utility>

#include "core/huge_pages.hpp"

namespace fewbit {

void AlignedBuffer::Free::operator()(void* block) const { std::free(block); }

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : block_(std::move(other.block_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  block_ = std::move(other.block_);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

Result<AlignedBuffer> AlignedBuffer::allocate(std::uint64_t bytes) {
  AlignedBuffer buffer;
  if (bytes == 0) return buffer;
  constexpr std::uint64_t most = std::numeric_limits<std::ptrdiff_t>::max() - alignment;
  // calloc leaves large blocks as untouched zero pages; memset would place them all at once.
  void* block = bytes > most ? nullptr : std::calloc(bytes + alignment - 1, 1);
  if (block == nullptr) {
    return Error{ErrorCode::limit, "can't allocate " + std::to_string(bytes) + " bytes of memory",
                 ""};
  }
  buffer.block_.reset(block);
  ask_for_huge_pages({static_cast<std::byte*>(block), bytes});
  void* aligned = block;
  std::size_t space = bytes + alignment - 1;
  buffer.data_ = static_cast<std::byte*>(std::align(alignment, bytes, aligned, space));
  buffer.size_ = bytes;
  return buffer;
}

}  // namespace fewbit
