// SPDX-License-Identifier: Apache-2.0
// 128 codes at a time. With masks a code takes three operations where vectors of the compiler take
// eight, and what can't be held is counted in a mask.
#include "layout/pack_fast_words.hpp"

#if defined(__x86_64__)

#include <cstring>

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512vl")

namespace fewbit {
namespace {

constexpr std::int64_t vector_words = 16;
constexpr std::int64_t ahead_bytes = 2048;  // the hardware stops at each page

inline __m512i byte_of(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }

// Codes and zero points in the same half of their bytes; all bits of it: the code 15.
inline __m512i as_vllm(__m512i codes, __m512i zeros, __m512i most) {
  const __mmask64 below = _mm512_cmplt_epu8_mask(codes, zeros);
  return _mm512_mask_sub_epi8(_mm512_sub_epi8(codes, zeros), below, most, codes);
}

// In low halves. Adds codes that can't be held to lost.
inline __m512i exact(__m512i codes, __m512i zeros, std::int64_t& lost) {
  const __m512i value = _mm512_sub_epi8(codes, zeros);
  const __m512i code = _mm512_mask_sub_epi8(value, _mm512_movepi8_mask(value), byte_of(7), value);
  const __mmask64 held = _mm512_cmple_epu8_mask(_mm512_add_epi8(value, byte_of(8)), byte_of(15));
  if (held != ~__mmask64{0}) lost += __builtin_popcountll(~held);
  return _mm512_maskz_mov_epi8(held, code);
}

inline __m512i sign_as_vllm(__m512i x, __m512i zeros) {
  const __m512i low = byte_of(0x0f);
  const __m512i high = byte_of(0xf0);
  return _mm512_or_si512(as_vllm(_mm512_and_si512(x, low), _mm512_and_si512(zeros, low), low),
                         as_vllm(_mm512_and_si512(x, high), _mm512_and_si512(zeros, high), high));
}

inline __m512i sign_exact(__m512i x, __m512i zeros, std::int64_t& lost) {
  const __m512i low = byte_of(0x0f);
  const __m512i first = exact(_mm512_and_si512(x, low), _mm512_and_si512(zeros, low), lost);
  const __m512i second = exact(_mm512_and_si512(_mm512_srli_epi16(x, 4), low),
                               _mm512_and_si512(_mm512_srli_epi16(zeros, 4), low), lost);
  return _mm512_or_si512(first, _mm512_slli_epi16(second, 4));
}

inline __m512i sign(const SignWords& job, __m512i x, __m512i zeros, std::int64_t& lost) {
  return job.as_vllm ? sign_as_vllm(x, zeros) : sign_exact(x, zeros, lost);
}

}  // namespace

std::int64_t sign_words_avx512(const SignWords& all) {
  const SignWords job = all;
  std::int64_t lost = 0;
  std::int64_t at = 0;
  for (; at + vector_words <= job.words; at += vector_words) {
    _mm_prefetch(reinterpret_cast<const char*>(job.source + 4 * at + ahead_bytes), _MM_HINT_T0);
    const __m512i x = _mm512_loadu_si512(job.source + 4 * at);
    _mm512_storeu_si512(job.out + at, sign(job, x, _mm512_loadu_si512(job.zeros + at), lost));
  }
  if (at == job.words) return lost;
  // Code 0 with zero point 0 is held.
  std::uint32_t words[vector_words] = {};
  std::uint32_t zeros[vector_words] = {};
  const auto bytes = static_cast<std::size_t>(4 * (job.words - at));
  std::memcpy(words, job.source + 4 * at, bytes);
  std::memcpy(zeros, job.zeros + at, bytes);
  const __m512i x = sign(job, _mm512_loadu_si512(words), _mm512_loadu_si512(zeros), lost);
  _mm512_storeu_si512(words, x);
  std::memcpy(job.out + at, words, bytes);
  return lost;
}

}  // namespace fewbit

FEWBIT_ISA_END

#endif
