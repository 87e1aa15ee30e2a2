// SPDX-License-Identifier: Apache-2.0
// Owned memory, zeroed and aligned for every vector load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "fewbit/result.hpp"

namespace fewbit {

class AlignedBuffer {
 public:
  static constexpr std::size_t alignment = 64;  // a cache line, and one AVX-512 register

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  // Zeroed. Pages of a large buffer are placed by the thread that first writes them.
  // Error limit: it can't be had (names the size).
  static Result<AlignedBuffer> allocate(std::uint64_t bytes);

  std::span<std::byte> span() { return {data_, size_}; }
  std::span<const std::byte> span() const { return {data_, size_}; }
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::uint64_t size() const { return size_; }

 private:
  struct Free {
    void operator()(void* block) const;
  };
  std::unique_ptr<void, Free> block_;  // what was allocated
  std::byte* data_ = nullptr;          // its first aligned byte
  std::size_t size_ = 0;
};

}  // namespace fewbit
