// SPDX-License-Identifier: Apache-2.0
// Cuts one block of scratch memory into aligned arrays; the same calls without memory measure it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>

#include "core/checked.hpp"

namespace fewbit {

class Carver {
 public:
  static constexpr std::uint64_t alignment = 64;

  Carver() = default;  // measures only: every span is empty
  // memory is aligned to 64 bytes.
  explicit Carver(std::span<std::byte> memory) : memory_(memory), measuring_(false) {}

  // rows * cols elements, not initialised, aligned to 64 bytes; empty when they do not fit.
  template <class T>
  std::span<T> take(std::int64_t rows, std::int64_t cols = 1) {
    static_assert(std::is_trivial_v<T> && alignof(T) <= alignment);
    const std::uint64_t begin = used_;
    const auto count =
        checked_mul(static_cast<std::uint64_t>(rows), static_cast<std::uint64_t>(cols));
    const auto bytes = count ? checked_mul(*count, std::uint64_t{sizeof(T)}) : count;
    const auto padded = bytes ? checked_round_up(*bytes, alignment) : bytes;
    const auto end = padded ? checked_add(begin, *padded) : padded;
    overflow_ = overflow_ || rows < 0 || cols < 0 || !end || (!measuring_ && *end > memory_.size());
    if (overflow_) return {};
    used_ = *end;
    if (measuring_) return {};
    return {reinterpret_cast<T*>(memory_.data() + begin), static_cast<std::size_t>(*count)};
  }

  // Bytes taken so far; empty after an overflow or when the memory was too small.
  std::optional<std::uint64_t> bytes() const {
    return overflow_ ? std::nullopt : std::optional(used_);
  }

 private:
  std::span<std::byte> memory_;
  bool measuring_ = true;
  bool overflow_ = false;
  std::uint64_t used_ = 0;
};

}  // namespace fewbit
