// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "kernels/cpu/f4_lane16.hpp"

FEWBIT_ISA_BEGIN("avx2,fma,f16c")

namespace fewbit {
namespace {

// Up to here weights go from the look-up straight into the multiply-adds; beyond, a group is
// decoded once into the first-level cache.
constexpr int direct_tokens = 4;
// Tokens of one register block: 2 x 6 accumulators, 2 weights, 1 broadcast of 16 registers.
constexpr int block_tokens = 6;
constexpr int prefetch_bytes = 2048;

// Values of the codes at nibble i of 8 words: the permute reads the low 3 bits, the magnitude; bit
// 3 is moved into the sign.
template <int I>
inline __attribute__((always_inline)) __m256 decode(__m256i words) {
  const __m256 table = _mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);
  const __m256 magnitude = _mm256_permutevar8x32_ps(table, _mm256_srli_epi32(words, 4 * I));
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(words, 28 - 4 * I),
                                        _mm256_set1_epi32(static_cast<int>(0x80000000U)));
  return _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign));
}

struct Halves {
  __m256 low, high;  // rows 0-7 and 8-15
};

// 16 scales: e4m3 bits shifted into f16 are the value times 2^-8, subnormals included.
inline __attribute__((always_inline)) Halves load_scales(const std::uint8_t* scales,
                                                         __m256 global) {
  const __m256i bytes =
      _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  const __m256i magnitude = _mm256_and_si256(bytes, _mm256_set1_epi16(0x7f));
  const __m256i sign = _mm256_and_si256(bytes, _mm256_set1_epi16(static_cast<short>(0x8000)));
  const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)),
                                       _mm256_set1_epi16(0x7e00));
  const __m256i half = _mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign), nan);
  const __m256 unit = _mm256_set1_ps(256.0F);
  const __m256 low = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), unit);
  const __m256 high = _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), unit);
  return {_mm256_mul_ps(low, global), _mm256_mul_ps(high, global)};
}

inline __attribute__((always_inline)) __m256i load_words(const std::uint8_t* codes) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(codes));
}

// part[t][half] += weights at nibble I of the words times x of each token.
template <int I, int TOKENS>
inline __attribute__((always_inline)) void step(__m256i low, __m256i high, const float* x,
                                                __m256 (&part)[TOKENS][2]) {
  const __m256 w0 = decode<I>(low);
  const __m256 w1 = decode<I>(high);
#pragma GCC unroll 4
  for (int t = 0; t < TOKENS; ++t) {
    const __m256 xt = _mm256_broadcast_ss(x + t * 16 + I);
    part[t][0] = _mm256_fmadd_ps(w0, xt, part[t][0]);
    part[t][1] = _mm256_fmadd_ps(w1, xt, part[t][1]);
  }
}

template <int TOKENS>
void run_block_direct(const std::uint8_t* codes, const std::uint8_t* scales, __m256 global,
                      std::int64_t groups, const float* x, float* y) {
#pragma GCC unroll 4
  for (int t = 0; t < TOKENS * 2; ++t) _mm256_store_ps(y + t * 8, _mm256_setzero_ps());
  for (std::int64_t g = 0; g < groups; ++g, x += TOKENS * 16, codes += 128, scales += 16) {
    __m256 part[TOKENS][2];
#pragma GCC unroll 4
    for (int t = 0; t < TOKENS; ++t) part[t][0] = part[t][1] = _mm256_setzero_ps();
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256i low = load_words(codes + half * 64);
      const __m256i high = load_words(codes + half * 64 + 32);
      _mm_prefetch(codes + half * 64 + prefetch_bytes, _MM_HINT_T0);
      const float* xh = x + half * 8;
      step<0, TOKENS>(low, high, xh, part);
      step<1, TOKENS>(low, high, xh, part);
      step<2, TOKENS>(low, high, xh, part);
      step<3, TOKENS>(low, high, xh, part);
      step<4, TOKENS>(low, high, xh, part);
      step<5, TOKENS>(low, high, xh, part);
      step<6, TOKENS>(low, high, xh, part);
      step<7, TOKENS>(low, high, xh, part);
    }
    const Halves s = load_scales(scales, global);
#pragma GCC unroll 4
    for (int t = 0; t < TOKENS; ++t) {
      float* total = y + t * 16;
      _mm256_store_ps(total, _mm256_fmadd_ps(s.low, part[t][0], _mm256_load_ps(total)));
      _mm256_store_ps(total + 8, _mm256_fmadd_ps(s.high, part[t][1], _mm256_load_ps(total + 8)));
    }
  }
}

template <int I>
inline __attribute__((always_inline)) void decode_to(__m256i low, __m256i high, float* w) {
  _mm256_store_ps(w + I * 16, decode<I>(low));
  _mm256_store_ps(w + I * 16 + 8, decode<I>(high));
}

// w[k][row] of one group.
inline __attribute__((always_inline)) void decode_group(const std::uint8_t* codes, float* w) {
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half, w += 128) {
    const __m256i low = load_words(codes + half * 64);
    const __m256i high = load_words(codes + half * 64 + 32);
    decode_to<0>(low, high, w);
    decode_to<1>(low, high, w);
    decode_to<2>(low, high, w);
    decode_to<3>(low, high, w);
    decode_to<4>(low, high, w);
    decode_to<5>(low, high, w);
    decode_to<6>(low, high, w);
    decode_to<7>(low, high, w);
  }
}

// total[t] += s * (w x) for one group and TOKENS tokens.
template <int TOKENS>
void multiply_group(const float* w, const Halves& s, const float* x, float* total) {
  __m256 part[TOKENS][2];
#pragma GCC unroll 6
  for (int t = 0; t < TOKENS; ++t) part[t][0] = part[t][1] = _mm256_setzero_ps();
#pragma GCC unroll 4
  for (int i = 0; i < 16; ++i) {
    const __m256 w0 = _mm256_load_ps(w + i * 16);
    const __m256 w1 = _mm256_load_ps(w + i * 16 + 8);
#pragma GCC unroll 6
    for (int t = 0; t < TOKENS; ++t) {
      const __m256 xt = _mm256_broadcast_ss(x + t * 16 + i);
      part[t][0] = _mm256_fmadd_ps(w0, xt, part[t][0]);
      part[t][1] = _mm256_fmadd_ps(w1, xt, part[t][1]);
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < TOKENS; ++t, total += 16) {
    _mm256_store_ps(total, _mm256_fmadd_ps(s.low, part[t][0], _mm256_load_ps(total)));
    _mm256_store_ps(total + 8, _mm256_fmadd_ps(s.high, part[t][1], _mm256_load_ps(total + 8)));
  }
}

using MultiplyGroup = void (*)(const float*, const Halves&, const float*, float*);
constexpr MultiplyGroup multiply_by_tokens[block_tokens] = {multiply_group<1>, multiply_group<2>,
                                                            multiply_group<3>, multiply_group<4>,
                                                            multiply_group<5>, multiply_group<6>};

void run_block_decoded(const std::uint8_t* codes, const std::uint8_t* scales, __m256 global,
                       std::int64_t groups, const float* x, int tokens, float* y) {
  alignas(64) float w[16 * 16];
  for (int t = 0; t < tokens * 2; ++t) _mm256_store_ps(y + t * 8, _mm256_setzero_ps());
  for (std::int64_t g = 0; g < groups; ++g, x += tokens * 16, codes += 128, scales += 16) {
    decode_group(codes, w);
    const Halves s = load_scales(scales, global);
    int t = 0;
    for (; t + block_tokens <= tokens; t += block_tokens)
      multiply_group<block_tokens>(w, s, x + t * 16, y + t * 16);
    if (t < tokens) multiply_by_tokens[tokens - t - 1](w, s, x + t * 16, y + t * 16);
  }
}

using RunBlock = void (*)(const std::uint8_t*, const std::uint8_t*, __m256, std::int64_t,
                          const float*, float*);
constexpr RunBlock run_direct[direct_tokens] = {run_block_direct<1>, run_block_direct<2>,
                                                run_block_direct<3>, run_block_direct<4>};

}  // namespace

void f4_lane16_avx2(const F4Lane16Blocks& weight, const float* x, int tokens, float* y) {
  const __m256 global = _mm256_set1_ps(weight.global_scale);
  for (std::int64_t b = 0; b < weight.blocks; ++b, y += tokens * 16) {
    const std::uint8_t* codes = weight.codes + b * weight.k * 8;
    const std::uint8_t* scales = weight.scales + b * weight.k;
    if (tokens <= direct_tokens)
      run_direct[tokens - 1](codes, scales, global, weight.k / 16, x, y);
    else
      run_block_decoded(codes, scales, global, weight.k / 16, x, tokens, y);
  }
}

}  // namespace fewbit
FEWBIT_ISA_END
