// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>

#include "quantize/gguf_encode_blocks.hpp"

namespace fewbit {
namespace {

constexpr int block_size = 32;
using Codes = std::array<std::uint8_t, block_size>;

struct Range {
  float min;
  float step;        // (max - min) / most
  float reciprocal;  // of step
};

// The value of largest magnitude, the first of equals, with its sign.
float signed_extreme(const float* values) {
  return *std::max_element(values, values + block_size,
                           [](float a, float b) { return std::abs(a) < std::abs(b); });
}

// Codes 0 to 2*half-1 of symmetric types: the extreme gets code 0, value -half. In f64, so that a
// fused multiply-add or none gives the same code.
float symmetric_codes(const float* values, int half, Codes& codes) {
  const float d = signed_extreme(values) / static_cast<float>(-half);
  const double reciprocal = static_cast<double>(safe_reciprocal(d));
  for (std::size_t j = 0; j < block_size; ++j) {
    const double code = static_cast<double>(values[j]) * reciprocal + half + 0.5;
    codes[j] = static_cast<std::uint8_t>(std::clamp(static_cast<int>(code), 0, 2 * half - 1));
  }
  return d;
}

// Codes 0 to most between the smallest and the largest value.
Range affine_codes(const float* values, int most, Codes& codes) {
  const auto [low, high] = std::minmax_element(values, values + block_size);
  Range range{*low, (*high - *low) / static_cast<float>(most), 0};
  range.reciprocal = safe_reciprocal(range.step);
  for (std::size_t j = 0; j < block_size; ++j) {
    const float code = (values[j] - range.min) * range.reciprocal + 0.5F;
    codes[j] = static_cast<std::uint8_t>(std::min(code, static_cast<float>(most)));
  }
  return range;
}

float larger_magnitude(float a, float b) { return std::abs(a) < std::abs(b) ? b : a; }

// Low nibbles are elements 0..15, high ones 16..31.
void store_nibbles(const Codes& codes, std::uint8_t* qs) {
  for (std::size_t j = 0; j < 16; ++j) {
    qs[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + 16] & 15) << 4);
  }
}

// Bit j of the four bytes is bit 4 of code j.
void store_fifth_bits(const Codes& codes, std::uint8_t* qh) {
  std::fill_n(qh, 4, std::uint8_t{0});
  for (std::size_t j = 0; j < block_size; ++j) {
    qh[j / 8] = static_cast<std::uint8_t>(qh[j / 8] | (codes[j] >> 4) << j % 8);
  }
}

}  // namespace

float safe_reciprocal(float d) {
  const float reciprocal = 1.0F / d;
  return d == 0 || !std::isfinite(reciprocal) ? 0.0F : reciprocal;
}

float largest_magnitude(const float* values, int count) {
  float largest = 0;
  for (int i = 0; i < count; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

float encode_q4_0(const float* values, std::uint8_t* block) {
  Codes codes{};
  const float d = symmetric_codes(values, 8, codes);
  store_f16(block, d);
  store_nibbles(codes, block + 2);
  return d;
}

float encode_q4_1(const float* values, std::uint8_t* block) {
  Codes codes{};
  const Range range = affine_codes(values, 15, codes);
  store_f16(block, range.step);
  store_f16(block + 2, range.min);
  store_nibbles(codes, block + 4);
  return larger_magnitude(range.step, range.min);
}

float encode_q5_0(const float* values, std::uint8_t* block) {
  Codes codes{};
  const float d = symmetric_codes(values, 16, codes);
  store_f16(block, d);
  store_fifth_bits(codes, block + 2);
  store_nibbles(codes, block + 6);
  return d;
}

float encode_q5_1(const float* values, std::uint8_t* block) {
  Codes codes{};
  const Range range = affine_codes(values, 31, codes);
  store_f16(block, range.step);
  store_f16(block + 2, range.min);
  store_fifth_bits(codes, block + 4);
  store_nibbles(codes, block + 8);
  return larger_magnitude(range.step, range.min);
}

float encode_q8_0(const float* values, std::uint8_t* block) {
  const float d = largest_magnitude(values, block_size) / 127.0F;
  const float reciprocal = safe_reciprocal(d);
  store_f16(block, d);
  for (int j = 0; j < block_size; ++j) {
    const int code = static_cast<int>(std::round(values[j] * reciprocal));
    block[2 + j] = static_cast<std::uint8_t>(static_cast<std::int8_t>(code));
  }
  return d;
}

// The exponent puts the largest magnitude between 4 and 8 (6 is the largest code).
float encode_mxfp4(const float* values, std::uint8_t* block) {
  const float largest = largest_magnitude(values, block_size);
  const int exponent = largest > 0 ? std::max(std::ilogb(largest) - 2 + 127, 0) : 0;
  block[0] = static_cast<std::uint8_t>(exponent);
  Codes codes{};
  for (std::size_t j = 0; j < block_size; ++j) {
    const float scaled = std::ldexp(values[j], 127 - exponent);
    const std::uint8_t code = f32_to_f4_e2m1_ties_down(scaled);
    codes[j] = code == 8 ? std::uint8_t{0} : code;
  }
  store_nibbles(codes, block + 1);
  return 0;
}

}  // namespace fewbit
