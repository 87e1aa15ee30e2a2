// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "core/isa_region.hpp"
#include "kernels/cpu/plain_rows.hpp"

// Every AArch64 CPU has these instructions, so there is no region.
#if defined(__aarch64__)

namespace fewbit {
namespace {

#include "kernels/cpu/plain_rows_loops.hpp"

#define FEWBIT_INLINE static inline __attribute__((always_inline))

struct Neon {
  struct Lanes {
    float32x4_t low, high;
  };
  // 2 (4 x 2 accumulators, 2 tokens, 1 weight) of 32 registers; 3 tokens would take all 32.
  static constexpr int block_tokens = 2;

  FEWBIT_INLINE Lanes zero() { return {vdupq_n_f32(0.0F), vdupq_n_f32(0.0F)}; }
  FEWBIT_INLINE Lanes load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
  FEWBIT_INLINE Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
    return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
  }
  FEWBIT_INLINE float sum(const Lanes& x) {
    const float32x4_t four = vaddq_f32(x.low, x.high);
    const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
  }

  FEWBIT_INLINE uint16x8_t load_bits(const std::uint8_t* p) {
    return vreinterpretq_u16_u8(vld1q_u8(p));
  }
  FEWBIT_INLINE Lanes bf16(const std::uint8_t* p) {
    const uint16x8_t bits = load_bits(p);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(bits), 16)),
            vreinterpretq_f32_u32(vshll_high_n_u16(bits, 16))};
  }
  FEWBIT_INLINE Lanes f16(const std::uint8_t* p) {
    const float16x8_t halves = vreinterpretq_f16_u16(load_bits(p));
    return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
  }
  FEWBIT_INLINE Lanes f32(const std::uint8_t* p) {
    return {vreinterpretq_f32_u8(vld1q_u8(p)), vreinterpretq_f32_u8(vld1q_u8(p + 16))};
  }
};

#undef FEWBIT_INLINE

}  // namespace

void bf16_rows_neon(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<Neon, Bf16<Neon>>(weight, x, tokens, y);
}
void f16_rows_neon(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<Neon, F16<Neon>>(weight, x, tokens, y);
}
void f32_rows_neon(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<Neon, F32<Neon>>(weight, x, tokens, y);
}

}  // namespace fewbit
#endif
