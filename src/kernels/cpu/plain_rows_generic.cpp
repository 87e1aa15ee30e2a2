// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "core/float_convert.hpp"
#include "kernels/cpu/plain_rows.hpp"

namespace fewbit {
namespace {

struct Bf16 {
  using Bits = std::uint16_t;
  static float value(Bits bits) { return bf16_to_f32(bits); }
};
struct F16 {
  using Bits = std::uint16_t;
  static float value(Bits bits) { return f16_to_f32(bits); }
};
struct F32 {
  using Bits = float;
  static float value(Bits value) { return value; }
};

// Up to 16 values of a row, zeros after `count`.
template <class T>
void load(const std::uint8_t* row, std::int64_t count, float (&w)[16]) {
  typename T::Bits bits[16] = {};
  std::memcpy(bits, row, static_cast<std::size_t>(count < 16 ? count : 16) * sizeof(bits[0]));
  for (int i = 0; i < 16; ++i) w[i] = T::value(bits[i]);
}

float sum_lanes(float (&lanes)[16]) {
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

template <class T>
void multiply(const PlainRows& weight, const float* x, int tokens, float* y) {
  constexpr std::int64_t size = sizeof(typename T::Bits);
  const std::int64_t padded = (weight.rows + 15) / 16 * 16;
  for (std::int64_t r = 0; r < padded; ++r) {
    float* out = y + r / 16 * tokens * 16 + r % 16;
    for (int t = 0; t < tokens; ++t) {
      float lanes[16] = {};
      for (std::int64_t k = 0; k < weight.k && r < weight.rows; k += 16) {
        float w[16];
        load<T>(weight.values + (r * weight.k + k) * size, weight.k - k, w);
        const float* xt = x + (k / 16 * tokens + t) * 16;
        for (int i = 0; i < 16; ++i) lanes[i] += w[i] * xt[i];
      }
      out[t * 16] = sum_lanes(lanes) * weight.scale;
    }
  }
}

}  // namespace

void bf16_rows_generic(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<Bf16>(weight, x, tokens, y);
}
void f16_rows_generic(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<F16>(weight, x, tokens, y);
}
void f32_rows_generic(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<F32>(weight, x, tokens, y);
}

}  // namespace fewbit
