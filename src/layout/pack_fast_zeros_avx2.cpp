// SPDX-License-Identifier: Apache-2.0
// Two exchanges: byte b of all eight words side by side, then their low and their high nibbles.
#include "layout/pack_fast_zeros.hpp"

#if defined(__x86_64__)

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx2")

namespace fewbit {

void pack_zeros_avx2(const MarlinZeroBlocks& job) {
  // Byte b of words 0 to 3 (and, in the other half, 4 to 7) at 4b.
  const __m256i columns = _mm256_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, 0,
                                           4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m256i stay = _mm256_set1_epi64x(static_cast<long long>(0xf0f0f0f00f0f0f0fULL));
  const __m256i down = _mm256_set1_epi64x(0x00000000f0f0f0f0LL);
  const __m256i up = _mm256_set1_epi64x(0x0f0f0f0f00000000LL);
  // Words come as nibbles 2b and 2b + 1, which are columns 0, 2 | 4, 6 | 1, 3 | 5, 7 of AutoAWQ.
  const bool awq = job.source == WordSource::awq;
  const __m256i order =
      awq ? _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7) : _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (std::int64_t block = 0; block < job.blocks; ++block) {
    const __m256i words =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(job.words + block * 32));
    const __m256i bytes = _mm256_shuffle_epi8(words, columns);
    const __m128i first = _mm256_castsi256_si128(bytes);
    const __m128i second = _mm256_extracti128_si256(bytes, 1);
    // Lane b: byte b of words 0 4 1 5 2 6 3 7: those that lie in low nibbles, then the others.
    const __m256i x =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi8(first, second)),
                                _mm_unpackhi_epi8(first, second), 1);
    const __m256i pairs = _mm256_or_si256(
        _mm256_and_si256(x, stay), _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi64(x, 28), down),
                                                   _mm256_and_si256(_mm256_slli_epi64(x, 28), up)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(job.out + block * 32),
                        _mm256_permutevar8x32_epi32(pairs, order));
  }
}

}  // namespace fewbit

FEWBIT_ISA_END

#endif
