// SPDX-License-Identifier: Apache-2.0
#include "core/isa_region.hpp"
#include "kernels/cpu/f4_lane16.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")

namespace fewbit {
namespace {

// Bytes of codes to prefetch ahead.
constexpr int prefetch_bytes = 2048;

inline __attribute__((always_inline)) __m512 value_table() {
  return _mm512_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F, -0.5F, -1.0F, -1.5F,
                        -2.0F, -3.0F, -4.0F, -6.0F);
}

// 16 scales: e4m3 bits shifted into f16 are the value times 2^-8, subnormals included.
inline __attribute__((always_inline)) __m512 load_scales(const std::uint8_t* scales,
                                                         __m512 global) {
  const __m256i bytes =
      _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
  const __m256i magnitude = _mm256_and_si256(bytes, _mm256_set1_epi16(0x7f));
  const __m256i sign = _mm256_and_si256(bytes, _mm256_set1_epi16(static_cast<short>(0x8000)));
  const __mmask16 nan = _mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f));
  __m256i half = _mm256_or_si256(_mm256_slli_epi16(magnitude, 7), sign);
  half = _mm256_mask_mov_epi16(half, nan, _mm256_set1_epi16(0x7e00));
  return _mm512_mul_ps(_mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0F)), global);
}

// One block with TOKENS tokens: part and the decoded weights stay in registers, total may spill.
template <int TOKENS>
void run_block(const std::uint8_t* codes, const std::uint8_t* scales, __m512 global,
               std::int64_t groups, const float* x, float* y) {
  const __m512 table = value_table();
  __m512 total[TOKENS];
#pragma GCC unroll 24
  for (int t = 0; t < TOKENS; ++t) total[t] = _mm512_setzero_ps();
  for (std::int64_t g = 0; g < groups; ++g, x += TOKENS * 16, codes += 128, scales += 16) {
    __m512 part[TOKENS];
#pragma GCC unroll 24
    for (int t = 0; t < TOKENS; ++t) part[t] = _mm512_setzero_ps();
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i words = _mm512_load_si512(codes + half * 64);
      _mm_prefetch(codes + half * 64 + prefetch_bytes, _MM_HINT_T0);
#pragma GCC unroll 8
      for (unsigned i = 0; i < 8; ++i) {
        // The permute reads the low 4 bits of a word only.
        const __m512 w = _mm512_permutexvar_ps(_mm512_srli_epi32(words, 4 * i), table);
#pragma GCC unroll 24
        for (int t = 0; t < TOKENS; ++t)
          part[t] = _mm512_fmadd_ps(w, _mm512_set1_ps(x[t * 16 + half * 8 + int(i)]), part[t]);
      }
    }
    const __m512 s = load_scales(scales, global);
#pragma GCC unroll 24
    for (int t = 0; t < TOKENS; ++t) total[t] = _mm512_fmadd_ps(s, part[t], total[t]);
  }
#pragma GCC unroll 24
  for (int t = 0; t < TOKENS; ++t) _mm512_store_ps(y + t * 16, total[t]);
}

template <int TOKENS>
void run_blocks(const F4Lane16Blocks& weight, const float* x, float* y) {
  const __m512 global = _mm512_set1_ps(weight.global_scale);
  for (std::int64_t b = 0; b < weight.blocks; ++b) {
    run_block<TOKENS>(weight.codes + b * weight.k * 8, weight.scales + b * weight.k, global,
                      weight.k / 16, x, y + b * TOKENS * 16);
  }
}

using RunBlocks = void (*)(const F4Lane16Blocks&, const float*, float*);
constexpr RunBlocks run_by_tokens[max_panel_tokens] = {
    run_blocks<1>,  run_blocks<2>,  run_blocks<3>,  run_blocks<4>,  run_blocks<5>,  run_blocks<6>,
    run_blocks<7>,  run_blocks<8>,  run_blocks<9>,  run_blocks<10>, run_blocks<11>, run_blocks<12>,
    run_blocks<13>, run_blocks<14>, run_blocks<15>, run_blocks<16>, run_blocks<17>, run_blocks<18>,
    run_blocks<19>, run_blocks<20>, run_blocks<21>, run_blocks<22>, run_blocks<23>, run_blocks<24>};

}  // namespace

void f4_lane16_avx512(const F4Lane16Blocks& weight, const float* x, int tokens, float* y) {
  run_by_tokens[tokens - 1](weight, x, y);
}

}  // namespace fewbit
FEWBIT_ISA_END
