// SPDX-License-Identifier: Apache-2.0
// Vectors of 16 bytes, which every machine has.
#include "layout/byte_survey.hpp"

#include <algorithm>
#include <cstring>

namespace fewbit {
namespace {

constexpr std::size_t lanes = 16;
constexpr std::size_t line = 64;
constexpr std::size_t ahead = 2048;  // the hardware stops at each page
using Lanes = std::uint8_t __attribute__((vector_size(lanes)));

Lanes load(const std::byte* from) {
  Lanes x;
  std::memcpy(&x, from, sizeof x);
  return x;
}

// All bits set where the byte lies in the range.
Lanes inside(Lanes x, ByteRange range) {
  const auto width = static_cast<std::uint8_t>(range.last - range.first);
  return reinterpret_cast<Lanes>((x - range.first) <= width);
}

bool holds(ByteRange range, std::byte byte) {
  const auto value = std::to_integer<std::uint8_t>(byte);
  return value >= range.first && value <= range.last;
}

}  // namespace

std::int64_t count_between(std::span<const std::byte> bytes, ByteRange range) {
  constexpr std::size_t most = 255;  // additions before a lane is full
  std::int64_t count = 0;
  std::size_t at = 0;
  while (at + lanes <= bytes.size()) {
    const std::size_t vectors = std::min(most, (bytes.size() - at) / lanes);
    Lanes sums{};
    for (std::size_t i = 0; i < vectors; ++i, at += lanes) {
      sums -= inside(load(bytes.data() + at), range);
    }
    for (std::size_t lane = 0; lane < lanes; ++lane) count += sums[lane];
  }
  for (; at < bytes.size(); ++at) count += holds(range, bytes[at]) ? 1 : 0;
  return count;
}

ByteRange extent_of(std::span<const std::byte> bytes) {
  Lanes smallest = ~Lanes{};
  Lanes largest{};
  const auto add = [&](std::size_t from) {
    const Lanes x = load(bytes.data() + from);
    smallest = x < smallest ? x : smallest;
    largest = x > largest ? x : largest;
  };
  std::size_t at = 0;
  for (; at + line <= bytes.size(); at += line) {
    __builtin_prefetch(bytes.data() + at + ahead);
    for (std::size_t i = 0; i < line; i += lanes) add(at + i);
  }
  for (; at + lanes <= bytes.size(); at += lanes) add(at);
  ByteRange extent{.first = 255, .last = 0};
  const auto include = [&extent](std::uint8_t low, std::uint8_t high) {
    extent = {.first = std::min(extent.first, low), .last = std::max(extent.last, high)};
  };
  for (std::size_t lane = 0; lane < lanes; ++lane) include(smallest[lane], largest[lane]);
  for (; at < bytes.size(); ++at) {
    const auto byte = std::to_integer<std::uint8_t>(bytes[at]);
    include(byte, byte);
  }
  return extent;
}

std::uint8_t largest_between(std::span<const std::byte> bytes, ByteRange range) {
  Lanes largest{};
  std::size_t at = 0;
  for (; at + lanes <= bytes.size(); at += lanes) {
    const Lanes x = load(bytes.data() + at);
    const Lanes mine = x & inside(x, range);
    largest = mine > largest ? mine : largest;
  }
  std::uint8_t result = 0;
  for (std::size_t lane = 0; lane < lanes; ++lane) result = std::max(result, largest[lane]);
  for (; at < bytes.size(); ++at) {
    if (holds(range, bytes[at]))
      result = std::max(result, std::to_integer<std::uint8_t>(bytes[at]));
  }
  return result;
}

}  // namespace fewbit
