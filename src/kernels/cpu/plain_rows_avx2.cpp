// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>

#include "core/isa_region.hpp"
#include "kernels/cpu/plain_rows.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx2,fma,f16c")

namespace fewbit {
namespace {

#include "kernels/cpu/plain_rows_loops.hpp"

#define FEWBIT_INLINE static inline __attribute__((always_inline))

struct Avx2 {
  using Lanes = __m256;
  // 4 x 3 accumulators, 3 tokens, 1 weight of 16 registers.
  static constexpr int block_tokens = 3;

  FEWBIT_INLINE Lanes zero() { return _mm256_setzero_ps(); }
  FEWBIT_INLINE Lanes load(const float* p) { return _mm256_load_ps(p); }
  FEWBIT_INLINE Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }
  FEWBIT_INLINE float sum(Lanes x) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }

  FEWBIT_INLINE __m128i load_bits(const std::uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  FEWBIT_INLINE Lanes bf16(const std::uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_bits(p)), 16));
  }
  FEWBIT_INLINE Lanes f16(const std::uint8_t* p) { return _mm256_cvtph_ps(load_bits(p)); }
  FEWBIT_INLINE Lanes f32(const std::uint8_t* p) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(p));
  }
};

#undef FEWBIT_INLINE

}  // namespace

void bf16_rows_avx2(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<Avx2, Bf16<Avx2>>(weight, x, tokens, y);
}
void f16_rows_avx2(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<Avx2, F16<Avx2>>(weight, x, tokens, y);
}
void f32_rows_avx2(const PlainRows& weight, const float* x, int tokens, float* y) {
  multiply<Avx2, F32<Avx2>>(weight, x, tokens, y);
}

}  // namespace fewbit
FEWBIT_ISA_END
#endif
