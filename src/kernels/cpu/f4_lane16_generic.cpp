// SPDX-License-Identifier: Apache-2.0
#include "core/float_convert.hpp"
#include "kernels/cpu/f4_lane16.hpp"

namespace fewbit {
namespace {

constexpr float values[16] = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                              -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

// Little-endian word of row r.
std::uint32_t word(const std::uint8_t* codes, int r) {
  const std::uint8_t* b = codes + 4 * r;
  return std::uint32_t{b[0]} | std::uint32_t{b[1]} << 8 | std::uint32_t{b[2]} << 16 |
         std::uint32_t{b[3]} << 24;
}

// 16 rows x 16 k as w[k][row], and the 16 scales.
void decode_group(const std::uint8_t* codes, const std::uint8_t* scales, float global_scale,
                  float (&w)[16][16], float (&s)[16]) {
  for (int half = 0; half < 2; ++half)
    for (int r = 0; r < 16; ++r) {
      const std::uint32_t nibbles = word(codes + half * 64, r);
      for (int i = 0; i < 8; ++i) w[half * 8 + i][r] = values[nibbles >> (4 * i) & 15U];
    }
  for (int r = 0; r < 16; ++r) s[r] = f8_e4m3_to_f32(scales[r]) * global_scale;
}

}  // namespace

void f4_lane16_generic(const F4Lane16Blocks& weight, const float* x, int tokens, float* y) {
  alignas(64) float w[16][16];
  alignas(64) float s[16];
  const std::int64_t groups = weight.k / 16;
  for (std::int64_t b = 0; b < weight.blocks; ++b, y += tokens * 16) {
    for (int i = 0; i < tokens * 16; ++i) y[i] = 0.0F;
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t group = b * groups + g;
      decode_group(weight.codes + group * 128, weight.scales + group * 16, weight.global_scale, w,
                   s);
      for (int t = 0; t < tokens; ++t) {
        const float* xt = x + (g * tokens + t) * 16;
        float part[16] = {};
        for (int i = 0; i < 16; ++i)
          for (int r = 0; r < 16; ++r) part[r] += w[i][r] * xt[i];
        for (int r = 0; r < 16; ++r) y[t * 16 + r] += s[r] * part[r];
      }
    }
  }
}

}  // namespace fewbit
