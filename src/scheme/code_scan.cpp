// SPDX-License-Identifier: Apache-2.0
#include "scheme/code_scan.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace fewbit {
namespace {

// An element is bad when its magnitude bits are `least` or more. The magnitude plus `carry` then
// reaches into the sign's place, which tells of all elements of a word at once.
struct Magnitudes {
  int bits = 8;
  std::uint32_t mask = 0x7f;
  std::uint32_t least = 0x7f;
};

Magnitudes magnitudes_of(DType dtype) {
  switch (dtype) {
    case DType::f8_e4m3:
      return {8, 0x7f, 0x7f};
    case DType::f8_e5m2:
      return {8, 0x7f, 0x7c};
    case DType::f16:
      return {16, 0x7fff, 0x7c00};
    case DType::bf16:
      return {16, 0x7fff, 0x7f80};
    case DType::f32:
      return {32, 0x7fffffff, 0x7f800000};
    default:
      return {0, 0, 0};
  }
}

bool is_fnuz(DType dtype) { return dtype == DType::f8_e4m3fnuz || dtype == DType::f8_e5m2fnuz; }

constexpr std::uint64_t in_every(std::uint64_t element, int bits) {
  std::uint64_t word = 0;
  for (int at = 0; at < 64; at += bits) word |= element << at;
  return word;
}

// Which elements are bad: the top bit of each.
class Judge {
 public:
  explicit Judge(const Magnitudes& magnitudes)
      : mask_(in_every(magnitudes.mask, magnitudes.bits)),
        carry_(in_every(magnitudes.mask + 1U - magnitudes.least, magnitudes.bits)),
        top_(in_every(std::uint64_t{magnitudes.mask} + 1U, magnitudes.bits)) {}
  std::uint64_t bad(std::uint64_t word) const { return ((word & mask_) + carry_) & top_; }

 private:
  std::uint64_t mask_;
  std::uint64_t carry_;
  std::uint64_t top_;
};

// 0x80, which would be minus zero, is the only NaN of the fnuz types.
class FnuzJudge {
 public:
  std::uint64_t bad(std::uint64_t word) const {
    constexpr std::uint64_t top = 0x8080808080808080U;
    return word & ~((word & ~top) + ~top) & top;
  }
};

template <class J>
std::uint64_t any_bad(const J& judge, std::span<const std::byte> bytes) {
  std::uint64_t any = 0;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, 8);
    any |= judge.bad(word);
  }
  return any;
}

template <class J>
BadElements scan(const J& judge, std::size_t width, std::span<const std::byte> bytes) {
  constexpr std::size_t piece_bytes = 4096;
  BadElements found;
  const auto count_in = [&](std::span<const std::byte> piece, std::size_t from) {
    for (std::size_t at = 0; at + width <= piece.size(); at += width) {
      std::uint64_t word = 0;
      std::memcpy(&word, piece.data() + at, width);
      // Bytes above the element are zero, which is never bad.
      if (judge.bad(word) == 0) continue;
      if (found.count++ == 0) found.first = (from + at) / width;
    }
  };
  for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
    const auto piece = bytes.subspan(at, std::min(piece_bytes, bytes.size() - at));
    if (piece.size() % 8 != 0 || any_bad(judge, piece) != 0) count_in(piece, at);
  }
  return found;
}

}  // namespace

bool has_bad_elements(DType dtype) { return is_fnuz(dtype) || magnitudes_of(dtype).bits != 0; }

BadElements find_bad_elements(DType dtype, Bad bad, std::span<const std::byte> bytes) {
  if (is_fnuz(dtype)) return scan(FnuzJudge(), 1, bytes);
  Magnitudes magnitudes = magnitudes_of(dtype);
  // Infinity has the least magnitude of all that is not finite; e4m3 has none.
  if (bad == Bad::nan && dtype != DType::f8_e4m3) ++magnitudes.least;
  return scan(Judge(magnitudes), static_cast<std::size_t>(magnitudes.bits) / 8, bytes);
}

BadElements find_bad_elements(DType dtype, Bad bad, const Checkpoint& checkpoint,
                              const TensorInfo& info) {
  constexpr std::size_t piece_bytes = std::size_t{64} << 20;
  const Tensor tensor = checkpoint.tensor(info);
  const std::span<const std::byte> bytes = tensor.view.bytes;
  const std::size_t width = static_cast<std::size_t>(dtype_bits(dtype)) / 8;
  BadElements found;
  for (std::size_t at = 0; at < bytes.size(); at += piece_bytes) {
    const auto piece = bytes.subspan(at, std::min(piece_bytes, bytes.size() - at));
    const BadElements more = find_bad_elements(dtype, bad, piece);
    if (found.count == 0) found.first = at / width + more.first;
    found.count += more.count;
    checkpoint.release(info);
  }
  return found;
}

}  // namespace fewbit
