// SPDX-License-Identifier: Apache-2.0
#include "layout/pack_fast_nf3.hpp"

#if defined(__x86_64__)

#include <cstring>

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512vl")

namespace fewbit {
namespace {

constexpr std::size_t ahead = 4096;  // the hardware stops at each page

inline void put_line(std::byte* at, __m512i x) {
  if (reinterpret_cast<std::uintptr_t>(at) % 64 == 0) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(at), x);
  } else {
    _mm512_storeu_si512(at, x);
  }
}

}  // namespace

void squeeze_nf3_avx512(const SqueezeNf3& all) {
  constexpr std::size_t step = 64;
  const SqueezeNf3 job = all;  // a copy, which the bytes that are written can't be part of
  std::size_t at = 0;
  for (; at + step <= job.count; at += step) {
    _mm_prefetch(reinterpret_cast<const char*>(job.codes + at + ahead), _MM_HINT_T0);
    const __m512i codes = _mm512_loadu_si512(job.codes + at);
    const std::uint64_t high = _mm512_test_epi8_mask(codes, _mm512_set1_epi8(4));
    std::memcpy(job.high + at / 8, &high, sizeof high);
    const __m512i low = _mm512_and_si512(codes, _mm512_set1_epi8(3));
    const __m512i pairs = _mm512_maddubs_epi16(low, _mm512_set1_epi16(0x0401));
    const __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(job.low + at / 4), _mm512_cvtepi32_epi8(fours));
  }
  squeeze_nf3_generic({.codes = job.codes + at,
                       .count = job.count - at,
                       .low = job.low + at / 4,
                       .high = job.high + at / 8});
}

// 16 units are the words 0 to 31 of the low plane, in two registers, and 16 to be put after each
// two of them.
void join_nf3_avx512(const JoinNf3& job) {
  constexpr int h = 16;  // from here on: words of the second register
  const __m512i first =
      _mm512_setr_epi32(0, 1, h, 2, 3, h + 1, 4, 5, h + 2, 6, 7, h + 3, 8, 9, h + 4, 10);
  const __m512i middle_low =
      _mm512_setr_epi32(11, 0, 12, 13, 0, 14, 15, 0, 16, 17, 0, 18, 19, 0, 20, 21);
  const __m512i middle =
      _mm512_setr_epi32(0, h + 5, 2, 3, h + 6, 5, 6, h + 7, 8, 9, h + 8, 11, 12, h + 9, 14, 15);
  const __m512i last = _mm512_setr_epi32(h + 10, 6, 7, h + 11, 8, 9, h + 12, 10, 11, h + 13, 12, 13,
                                         h + 14, 14, 15, h + 15);
  for (std::int64_t i = 0; i < job.units; i += 16) {
    const __m512i low = _mm512_loadu_si512(job.low + 8 * i);
    const __m512i more = _mm512_loadu_si512(job.low + 8 * i + 64);
    const __m512i high = _mm512_loadu_si512(job.high + 4 * i);
    std::byte* const out = job.out + 12 * i;
    put_line(out, _mm512_permutex2var_epi32(low, first, high));
    put_line(out + 64, _mm512_permutex2var_epi32(_mm512_permutex2var_epi32(low, middle_low, more),
                                                 middle, high));
    put_line(out + 128, _mm512_permutex2var_epi32(more, last, high));
  }
}

}  // namespace fewbit

FEWBIT_ISA_END

#endif
