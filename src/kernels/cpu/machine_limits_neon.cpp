// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "kernels/cpu/machine_limits.hpp"

// Every AArch64 CPU has these instructions, so there is no region.
#if defined(__aarch64__)

namespace fewbit {

std::int64_t fma_loop_neon(std::int64_t rounds, float* sink) {
  constexpr int chains = 16;
  float32x4_t acc[chains];
  // Different starts: equal chains would be one to the compiler. A chain holds its distance from 1,
  // since the instruction overwrites its addend: x <- 0.999 x + 0.001 would copy one each time.
#pragma GCC unroll 16
  for (int c = 0; c < chains; ++c) acc[c] = vdupq_n_f32(static_cast<float>(c) + *sink - 1.0F);
  const float32x4_t factor = vdupq_n_f32(-0.001F);
  for (std::int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (int c = 0; c < chains; ++c) acc[c] = vfmaq_f32(acc[c], acc[c], factor);
  }
#pragma GCC unroll 16
  for (int c = 0; c < chains; ++c) *sink += vaddvq_f32(acc[c]) + 4.0F;
  return rounds * chains * 4 * 2;
}

std::uint64_t read_loop_neon(const std::uint8_t* data, std::int64_t size) {
  uint8x16_t seen[16];
#pragma GCC unroll 16
  for (int c = 0; c < 16; ++c) seen[c] = vdupq_n_u8(0);
  for (std::int64_t i = 0; i < size; i += 256) {
#pragma GCC unroll 16
    for (int c = 0; c < 16; ++c) seen[c] = vorrq_u8(seen[c], vld1q_u8(data + i + c * 16));
    for (int line = 0; line < 256; line += 64) __builtin_prefetch(data + i + 4096 + line);
  }
#pragma GCC unroll 16
  for (int c = 1; c < 16; ++c) seen[0] = vorrq_u8(seen[0], seen[c]);
  const uint64x2_t all = vreinterpretq_u64_u8(seen[0]);
  return vgetq_lane_u64(all, 0) | vgetq_lane_u64(all, 1);
}

}  // namespace fewbit
#endif
