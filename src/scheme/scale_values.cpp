// SPDX-License-Identifier: Apache-2.0
#include "scheme/scale_values.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/convert.hpp"
#include "core/float_convert.hpp"

namespace fewbit {
namespace {

constexpr std::size_t chunk_elements = std::size_t{1} << 14;

std::uint64_t is_whole(float x) { return x >= 1.0F && x <= 254.0F && x == std::floor(x) ? 1 : 0; }

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
  } else {
    counts.whole += is_whole(x) * times;
  }
}

// How often each byte stands there. Equal neighbours would wait for each other in one table.
std::array<std::uint64_t, 256> count_each_byte(std::span<const std::byte> bytes) {
  constexpr std::size_t tables = 8;
  constexpr std::size_t piece_bytes = std::size_t{1} << 30;  // no entry of a table overflows
  std::array<std::uint64_t, 256> times{};
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(piece_bytes, bytes.size()));
    bytes = bytes.subspan(piece.size());
    std::array<std::array<std::uint32_t, 256>, tables> counts{};
    std::size_t at = 0;
    for (; at + tables <= piece.size(); at += tables) {
      std::uint64_t word = 0;
      std::memcpy(&word, piece.data() + at, tables);
      for (std::size_t i = 0; i < tables; ++i) ++counts[i][word >> 8 * i & 0xff];
    }
    for (; at < piece.size(); ++at) ++counts[0][std::to_integer<std::size_t>(piece[at])];
    for (const auto& table : counts) {
      for (std::size_t code = 0; code < times.size(); ++code) times[code] += table[code];
    }
  }
  return times;
}

// A type of one byte has 256 values: count the bytes, look at each value once.
bool count_bytes(DType dtype, std::span<const std::byte> bytes, ScaleCounts& counts) {
  std::array<std::byte, 256> codes{};
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i);
  std::array<float, 256> values{};
  if (dtype == DType::f8_e5m3) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = f8_e5m3_to_f32(static_cast<std::uint8_t>(i));
    }
  } else if (!convert_to_f32(dtype, codes, values)) {
    return false;
  }
  const std::array<std::uint64_t, 256> times = count_each_byte(bytes);
  for (std::size_t i = 0; i < values.size(); ++i) add_value(values[i], times[i], counts);
  return true;
}

// Positive finite numbers, which scales are, without a look at each: their bits have their order.
// False: there is another kind among them, and nothing was counted.
bool count_usual(std::span<const float> values, ScaleCounts& counts) {
  constexpr std::uint32_t infinity = 0x7f800000;
  std::uint32_t low = infinity;
  std::uint32_t high = 0;
  std::uint32_t whole = 0;
  for (const float x : values) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    low = std::min(low, bits);
    high = std::max(high, bits);
    const float inside = x >= 1.0F && x <= 254.0F ? x : 0.5F;
    whole += static_cast<float>(static_cast<std::int32_t>(inside)) == inside ? 1U : 0U;
  }
  if (values.empty() || low == 0 || high >= infinity) return false;
  add_value(std::bit_cast<float>(low), 1, counts);
  add_value(std::bit_cast<float>(high), 1, counts);
  counts.whole = counts.whole + whole - is_whole(std::bit_cast<float>(low)) -
                 is_whole(std::bit_cast<float>(high));
  return true;
}

bool count_numbers(DType dtype, std::span<const std::byte> bytes, ScaleCounts& counts) {
  const std::size_t width = static_cast<std::size_t>(dtype_bits(dtype)) / 8;
  std::vector<float> values(std::min(chunk_elements, bytes.size() / width));
  for (std::size_t at = 0; at + width <= bytes.size(); at += chunk_elements * width) {
    const auto chunk = bytes.subspan(at, std::min(chunk_elements * width, bytes.size() - at));
    const std::span<float> out(values.data(), chunk.size() / width);
    if (!convert_to_f32(dtype, chunk.first(out.size() * width), out)) return false;
    if (count_usual(out, counts)) continue;
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
