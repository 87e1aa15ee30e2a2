// SPDX-License-Identifier: Apache-2.0
#include "scheme/scale_values.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/convert.hpp"

namespace fewbit {
namespace {

constexpr std::size_t chunk_elements = std::size_t{1} << 14;

void add_value(float x, std::uint64_t times, ScaleCounts& counts) {
  if (times == 0) return;
  if (!std::isfinite(x)) {
    counts.not_finite += times;
    return;
  }
  const bool first = counts.smallest > counts.largest;
  counts.smallest = first ? x : std::min(counts.smallest, x);
  counts.largest = first ? x : std::max(counts.largest, x);
  if (x == 0.0F) {
    counts.zero += times;
  } else if (x < 0.0F) {
    counts.negative += times;
  } else if (x >= 1.0F && x <= 254.0F && x == std::floor(x)) {
    counts.whole += times;
  }
}

// A type of one byte has 256 values: count the bytes, look at each value once.
bool count_bytes(DType dtype, std::span<const std::byte> bytes, ScaleCounts& counts) {
  std::array<std::byte, 256> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i);
  std::array<float, 256> values{};
  if (!convert_to_f32(dtype, codes, values)) return false;
  std::array<std::uint64_t, 256> times{};
  for (const std::byte byte : bytes) ++times[std::to_integer<std::size_t>(byte)];
  for (std::size_t i = 0; i < values.size(); ++i) add_value(values[i], times[i], counts);
  return true;
}

bool count_numbers(DType dtype, std::span<const std::byte> bytes, ScaleCounts& counts) {
  const std::size_t width = static_cast<std::size_t>(dtype_bits(dtype)) / 8;
  std::vector<float> values(std::min(chunk_elements, bytes.size() / width));
  for (std::size_t at = 0; at + width <= bytes.size(); at += chunk_elements * width) {
    const auto chunk = bytes.subspan(at, std::min(chunk_elements * width, bytes.size() - at));
    const std::span<float> out(values.data(), chunk.size() / width);
    if (!convert_to_f32(dtype, chunk, out)) return false;
    for (const float x : out) add_value(x, 1, counts);
  }
  return true;
}

}  // namespace

std::optional<ScaleCounts> count_scale_values(DType dtype, std::span<const std::byte> bytes) {
  const int bits = dtype_bits(dtype);
  if (bits % 8 != 0 || bits > 64) return std::nullopt;
  ScaleCounts counts;
  counts.values = bytes.size() / (static_cast<std::size_t>(bits) / 8);
  counts.smallest = 1.0F;  // above `largest`: no value yet
  const bool known =
      bits == 8 ? count_bytes(dtype, bytes, counts) : count_numbers(dtype, bytes, counts);
  if (!known) return std::nullopt;
  if (!counts.has_number()) counts.smallest = 0.0F;
  return counts;
}

}  // namespace fewbit
