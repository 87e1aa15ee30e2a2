// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/float_convert.hpp"
#include "core/isa_region.hpp"
#include "kernels/cpu/lane16.hpp"

// Every AArch64 CPU has these instructions, so there is no region.
#if defined(__aarch64__)

namespace fewbit {
namespace {

#include "kernels/cpu/lane16_loops.hpp"

#define FEWBIT_INLINE static inline __attribute__((always_inline))

struct Neon {
  struct Floats {
    float32x4_t quarter[4];  // four rows each
  };
  struct Words {
    uint32x4_t quarter[4];
  };
  static constexpr int direct_tokens = 4;
  // 4 x 6 accumulators, 4 weights, 1 broadcast of 32 registers.
  static constexpr int block_tokens = 6;
  static constexpr int prefetch_bytes = 2048;
  static constexpr int direct_chains(int tokens) { return tokens == 1 ? 2 : 1; }
  static constexpr bool raw_e4m3 = false;
  using NanRows = bool;

  template <class Out, class Quarter>
  FEWBIT_INLINE Out each(Quarter quarter) {
    Out out;
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) out.quarter[q] = quarter(q);
    return out;
  }

  FEWBIT_INLINE Floats same(float x) {
    return each<Floats>([x](int) { return vdupq_n_f32(x); });
  }
  FEWBIT_INLINE Floats zero() { return same(0.0F); }
  FEWBIT_INLINE Floats load(const float* p) {
    return each<Floats>([p](int q) { return vld1q_f32(p + 4 * q); });
  }
  FEWBIT_INLINE void store(float* p, const Floats& x) {
#pragma GCC unroll 4
    for (int q = 0; q < 4; ++q) vst1q_f32(p + 4 * q, x.quarter[q]);
  }
  FEWBIT_INLINE Floats mul(const Floats& a, const Floats& b) {
    return each<Floats>([&](int q) { return vmulq_f32(a.quarter[q], b.quarter[q]); });
  }
  FEWBIT_INLINE Floats sub(const Floats& a, const Floats& b) {
    return each<Floats>([&](int q) { return vsubq_f32(a.quarter[q], b.quarter[q]); });
  }
  FEWBIT_INLINE Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return each<Floats>([&](int q) { return vfmaq_f32(c.quarter[q], a.quarter[q], b.quarter[q]); });
  }

  FEWBIT_INLINE Words load_words(const std::uint8_t* p) {
    return each<Words>([p](int q) { return vreinterpretq_u32_u8(vld1q_u8(p + 16 * q)); });
  }
  FEWBIT_INLINE Words same_words(std::uint32_t x) {
    return each<Words>([x](int) { return vdupq_n_u32(x); });
  }
  FEWBIT_INLINE Words flip(const Words& a, const Words& b) {
    return each<Words>([&](int q) { return veorq_u32(a.quarter[q], b.quarter[q]); });
  }

  FEWBIT_INLINE Words load_any_words(const std::uint8_t* p) { return load_words(p); }
  FEWBIT_INLINE uint16x8_t load_shorts(const std::uint8_t* p) {
    return vreinterpretq_u16_u8(vld1q_u8(p));
  }
  FEWBIT_INLINE Words words_of(uint16x8_t low, uint16x8_t high) {
    return {{vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low), vmovl_u16(vget_low_u16(high)),
             vmovl_high_u16(high)}};
  }
  FEWBIT_INLINE Words load_halves(const std::uint8_t* p) {
    return words_of(load_shorts(p), load_shorts(p + 16));
  }
  FEWBIT_INLINE Words right(const Words& words, int i) {
    return each<Words>([&](int q) { return words.quarter[q] >> i; });
  }
  FEWBIT_INLINE Words left(const Words& words, int i) {
    return each<Words>([&](int q) { return words.quarter[q] << i; });
  }
  FEWBIT_INLINE Words right_by(const Words& words, int i) { return right(words, i); }
  FEWBIT_INLINE Words masked(const Words& words, std::uint32_t bits) {
    return each<Words>([&](int q) { return vandq_u32(words.quarter[q], vdupq_n_u32(bits)); });
  }
  FEWBIT_INLINE Words either(const Words& a, const Words& b) {
    return each<Words>([&](int q) { return vorrq_u32(a.quarter[q], b.quarter[q]); });
  }
  FEWBIT_INLINE Floats floats_of(const Words& words) {
    return each<Floats>([&](int q) { return vcvtq_f32_u32(words.quarter[q]); });
  }
  FEWBIT_INLINE Floats uint6_minus(const Words& words, int i, const Floats& zero) {
    return sub(floats_of(masked(right(words, 8 * i), 63)), zero);
  }

  // Byte b of value c stands at 4 c + b of a table of 32 bytes.
  FEWBIT_INLINE Floats nf3(const Words& codes) {
    static constexpr float values[8] = {nf3_to_f32(0), nf3_to_f32(1), nf3_to_f32(2), nf3_to_f32(3),
                                        nf3_to_f32(4), nf3_to_f32(5), nf3_to_f32(6), nf3_to_f32(7)};
    const uint8x16x2_t table = {
        {vreinterpretq_u8_f32(vld1q_f32(values)), vreinterpretq_u8_f32(vld1q_f32(values + 4))}};
    return each<Floats>([&](int q) {
      const uint32x4_t code = vandq_u32(codes.quarter[q], vdupq_n_u32(7));
      const uint32x4_t at = vmlaq_n_u32(vdupq_n_u32(0x03020100), code, 0x04040404);
      return vreinterpretq_f32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u32(at)));
    });
  }
  FEWBIT_INLINE Floats ternary(const Words& codes) {
    return sub(floats_of(masked(codes, 3)), same(1.0F));
  }

  // Bits 4 i to 4 i + 3 of each word at bit `to`, all else zero.
  FEWBIT_INLINE uint32x4_t nibble(uint32x4_t words, int i, int to) {
    const uint32x4_t moved = 4 * i < to ? words << (to - 4 * i) : words >> (4 * i - to);
    return vandq_u32(moved, vdupq_n_u32(15U << to));
  }
  // Twice every value fits a signed byte. It is looked up in the highest byte of its word, where
  // it counts 2^24 times as much; the other bytes are 0 and stay 0.
  FEWBIT_INLINE Floats e2m1(const Words& words, int i) {
    static constexpr std::int8_t twice[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                              0, -1, -2, -3, -4, -6, -8, -12};
    const int8x16_t table = vld1q_s8(twice);
    return each<Floats>([&](int q) {
      const uint8x16_t at = vreinterpretq_u8_u32(nibble(words.quarter[q], i, 24));
      return vcvtq_n_f32_s32(vreinterpretq_s32_s8(vqtbl1q_s8(table, at)), 25);
    });
  }
  // In the highest bits, where its sign is the word's.
  FEWBIT_INLINE Floats int4(const Words& words, int i) {
    return each<Floats>([&](int q) {
      return vcvtq_n_f32_s32(vreinterpretq_s32_u32(nibble(words.quarter[q], i, 28)), 28);
    });
  }
  FEWBIT_INLINE Floats uint4_minus(const Words& words, int i, const Floats& zero) {
    return each<Floats>([&](int q) {
      return vsubq_f32(vcvtq_f32_u32(nibble(words.quarter[q], i, 0)), zero.quarter[q]);
    });
  }

  FEWBIT_INLINE Floats signed_floats(int16x8_t low, int16x8_t high) {
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
  }
  FEWBIT_INLINE Floats int8(const std::uint8_t* p, int flip) {
    const uint8x16_t bits = veorq_u8(vld1q_u8(p), vdupq_n_u8(static_cast<std::uint8_t>(flip)));
    const int8x16_t bytes = vreinterpretq_s8_u8(bits);
    return signed_floats(vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
  }
  FEWBIT_INLINE Floats halves(uint16x8_t low, uint16x8_t high) {
    const float16x8_t l = vreinterpretq_f16_u16(low);
    const float16x8_t h = vreinterpretq_f16_u16(high);
    return {{vcvt_f32_f16(vget_low_f16(l)), vcvt_high_f32_f16(l), vcvt_f32_f16(vget_low_f16(h)),
             vcvt_high_f32_f16(h)}};
  }
  // e4m3 bits shifted into f16 are the value times 2^-8, subnormals included.
  FEWBIT_INLINE uint16x8_t e4m3_half(int16x8_t bytes) {
    const uint16x8_t shifted = vreinterpretq_u16_s16(vshlq_n_s16(bytes, 7));
    const uint16x8_t half = vandq_u16(shifted, vdupq_n_u16(0xbf80));
    const uint16x8_t magnitude = vdupq_n_u16(0x3f80);
    const uint16x8_t nan =
        vandq_u16(vceqq_u16(vandq_u16(half, magnitude), magnitude), vdupq_n_u16(0x7e00));
    return vorrq_u16(half, nan);
  }
  FEWBIT_INLINE Floats e4m3(const std::uint8_t* p) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
    return mul(halves(e4m3_half(vmovl_s8(vget_low_s8(bytes))), e4m3_half(vmovl_high_s8(bytes))),
               same(256.0F));
  }
  // The byte is the exponent of the result but for 0 (2^-127, subnormal) and 255 (NaN).
  FEWBIT_INLINE Floats e8m0(const std::uint8_t* p) {
    const uint8x16_t bytes = vld1q_u8(p);
    const Words exponents = words_of(vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
    return each<Floats>([&](int q) {
      const uint32x4_t bits = vshlq_n_u32(exponents.quarter[q], 23);
      const uint32x4_t end = vorrq_u32(vceqzq_u32(bits), vceqq_u32(bits, vdupq_n_u32(0x7f800000)));
      return vreinterpretq_f32_u32(vorrq_u32(bits, vandq_u32(end, vdupq_n_u32(0x00400000))));
    });
  }
  FEWBIT_INLINE Floats f16(const std::uint8_t* p) {
    return halves(load_shorts(p), load_shorts(p + 16));
  }
  FEWBIT_INLINE Floats bf16(const std::uint8_t* p) {
    const Words bits = load_halves(p);
    return each<Floats>(
        [&](int q) { return vreinterpretq_f32_u32(vshlq_n_u32(bits.quarter[q], 16)); });
  }
  FEWBIT_INLINE Floats f32(const std::uint8_t* p) {
    return each<Floats>([p](int q) { return vreinterpretq_f32_u8(vld1q_u8(p + 16 * q)); });
  }
};

#undef FEWBIT_INLINE

}  // namespace

Lane16Fn* lane16_neon(Lane16Codes codes) { return kernel_of<Neon>(codes); }

}  // namespace fewbit
#endif
