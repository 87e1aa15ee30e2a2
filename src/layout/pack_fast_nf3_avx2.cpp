// SPDX-License-Identifier: Apache-2.0
#include "layout/pack_fast_nf3.hpp"

#if defined(__x86_64__)

#include <cstring>

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx2")

namespace fewbit {
namespace {

// Four codes a byte, in the lowest byte of each four.
inline __m256i join_low_bits(__m256i codes) {
  const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi8(3));
  const __m256i pairs = _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x0401));
  return _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x00100001));
}

}  // namespace

void squeeze_nf3_avx2(const SqueezeNf3& job) {
  constexpr std::size_t step = 32;
  const __m256i first_bytes =
      _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12, -1,
                       -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
  std::size_t at = 0;
  for (; at + step <= job.count; at += step) {
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(job.codes + at));
    const int high = _mm256_movemask_epi8(_mm256_slli_epi16(codes, 5));
    std::memcpy(job.high + at / 8, &high, sizeof high);
    const __m256i low = _mm256_shuffle_epi8(join_low_bits(codes), first_bytes);
    const int halves[2] = {_mm256_extract_epi32(low, 0), _mm256_extract_epi32(low, 4)};
    std::memcpy(job.low + at / 4, halves, sizeof halves);
  }
  squeeze_nf3_generic({.codes = job.codes + at,
                       .count = job.count - at,
                       .low = job.low + at / 4,
                       .high = job.high + at / 8});
}

}  // namespace fewbit

FEWBIT_ISA_END

#endif
