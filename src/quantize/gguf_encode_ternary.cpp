// SPDX-License-Identifier: Apache-2.0
// Ternary types: the scale is the block's largest magnitude, so codes are -1, 0, +1, stored plus 1.
#include <algorithm>
#include <array>
#include <cmath>

#include "quantize/gguf_encode_blocks.hpp"

namespace fewbit {
namespace {

// Codes 0, 1, 2 of `count` (at most 256) values; halves go away from zero. Returns the scale.
float ternary_codes(const float* values, int count, std::array<std::uint8_t, 256>& codes) {
  const float d = largest_magnitude(values, count);
  const float reciprocal = safe_reciprocal(d);
  for (int i = 0; i < count; ++i) {
    const float code = std::round(values[i] * reciprocal) + 1.0F;
    codes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(code);
  }
  return d;
}

float encode_pairs(const float* values, int count, std::uint8_t* block) {
  std::array<std::uint8_t, 256> codes{};
  const float d = ternary_codes(values, count, codes);
  store_f16(block, d);
  for (int byte = 0; byte < count / 4; ++byte) {
    const std::uint8_t* four = codes.data() + 4 * byte;
    block[2 + byte] =
        static_cast<std::uint8_t>(four[0] | four[1] << 2 | four[2] << 4 | four[3] << 6);
  }
  return d;
}

// `bytes` bytes of `digits` base-3 digits each, digit-major. Four digits count as five with a last
// zero; the integer below 243 is spread over a byte, rounded up. Returns the next unread code.
const std::uint8_t* encode_digits(const std::uint8_t* codes, int bytes, int digits,
                                  std::uint8_t* target) {
  for (int m = 0; m < bytes; ++m) {
    int number = 0;
    for (int n = 0; n < 5; ++n) number = 3 * number + (n < digits ? codes[n * bytes + m] : 0);
    target[m] = static_cast<std::uint8_t>((number * 256 + 242) / 243);
  }
  return codes + bytes * digits;
}

}  // namespace

float encode_q2_0_64(const float* values, std::uint8_t* block) {
  return encode_pairs(values, 64, block);
}
float encode_q2_0_128(const float* values, std::uint8_t* block) {
  return encode_pairs(values, 128, block);
}

float encode_tq1_0(const float* values, std::uint8_t* block) {
  std::array<std::uint8_t, 256> codes{};
  const float d = ternary_codes(values, 256, codes);
  const std::uint8_t* next = encode_digits(codes.data(), 32, 5, block);
  next = encode_digits(next, 16, 5, block + 32);
  encode_digits(next, 4, 4, block + 48);
  store_f16(block + 52, d);
  return d;
}

float encode_ptq1_0(const float* values, std::uint8_t* block) {
  std::array<std::uint8_t, 256> codes{};
  const float d = ternary_codes(values, 128, codes);
  const std::uint8_t* next = encode_digits(codes.data(), 16, 5, block);
  next = encode_digits(next, 8, 5, block + 16);
  encode_digits(next, 2, 4, block + 24);
  store_f16(block + 26, d);
  return d;
}

float encode_tq2_0(const float* values, std::uint8_t* block) {
  std::array<std::uint8_t, 256> codes{};
  const float d = ternary_codes(values, 256, codes);
  for (std::size_t byte = 0; byte < 64; ++byte) {
    const std::uint8_t* first = codes.data() + byte / 32 * 128 + byte % 32;
    block[byte] =
        static_cast<std::uint8_t>(first[0] | first[32] << 2 | first[64] << 4 | first[96] << 6);
  }
  store_f16(block + 64, d);
  return d;
}

}  // namespace fewbit
