// SPDX-License-Identifier: Apache-2.0
#include "layout/fp8_rows.hpp"

#include <cassert>
#include <cmath>

#include "core/float_convert.hpp"

namespace fewbit {
namespace {

constexpr float largest_fp8 = 448.0F;

float weight(const Nvfp4Row& row, std::size_t k) {
  const unsigned pair = row.codes[k / 2];
  const float code = f4_e2m1_to_f32(static_cast<std::uint8_t>(k % 2 == 0 ? pair & 15U : pair >> 4));
  return code * (f8_e4m3_to_f32(row.scales[k / 16]) * row.global_scale);
}

// value(k): the weights of a row.
template <class Value>
float scaled_row(std::size_t count, const Value& value, std::span<std::uint8_t> codes) {
  float largest = 0.0F;
  for (std::size_t k = 0; k < count; ++k) largest = std::fmax(largest, std::abs(value(k)));
  const float scale = largest > 0.0F ? largest / largest_fp8 : 1.0F;
  const float inverse = 1.0F / scale;
  for (std::size_t k = 0; k < count; ++k) codes[k] = f32_to_f8_e4m3_sat(value(k) * inverse);
  return scale;
}

}  // namespace

float bf16_row_to_fp8(std::span<const std::uint16_t> row, std::span<std::uint8_t> codes) {
  assert(row.size() == codes.size());
  return scaled_row(
      row.size(), [&](std::size_t k) { return bf16_to_f32(row[k]); }, codes);
}

void nvfp4_row_to_fp8(const Nvfp4Row& row, std::span<std::uint8_t> codes) {
  assert(row.codes.size() * 2 == codes.size() && row.scales.size() * 16 == codes.size());
  for (std::size_t k = 0; k < codes.size(); ++k) codes[k] = f32_to_f8_e4m3_sat(weight(row, k));
}

float nvfp4_row_to_scaled_fp8(const Nvfp4Row& row, std::span<std::uint8_t> codes) {
  assert(row.codes.size() * 2 == codes.size() && row.scales.size() * 16 == codes.size());
  return scaled_row(
      codes.size(), [&](std::size_t k) { return weight(row, k); }, codes);
}

}  // namespace fewbit
