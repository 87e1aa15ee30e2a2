// SPDX-License-Identifier: Apache-2.0
// Sixteen weights at a time: a group of NVFP4 is one vector.
#include "layout/pack_fast_fp8.hpp"

#if defined(__x86_64__)

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512vl")

namespace fewbit {
namespace {

inline __m512i all_of(unsigned value) { return _mm512_set1_epi32(static_cast<int>(value)); }

// As to_e4m3 of the portable variant: a code in each lane.
inline __m512i to_e4m3(__m512 x) {
  constexpr int a_and_b_or_c = 0xea;
  const __m512 magic = _mm512_set1_ps(0x1p14F);
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i magnitude = _mm512_and_si512(bits, all_of(0x7fffffffU));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(magnitude, 20), all_of(1));
  const __m512i lowered = _mm512_add_epi32(magnitude, all_of(0x7ffffU - (960U << 20)));
  const __m512i normal = _mm512_srli_epi32(_mm512_add_epi32(lowered, odd), 20);
  const __m512i sum = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(magnitude), magic));
  const __mmask16 is_small = _mm512_cmplt_epu32_mask(magnitude, all_of(121U << 23));
  const __mmask16 is_number = _mm512_cmple_epu32_mask(magnitude, all_of(0x7f800000U));
  const __m512i code = _mm512_mask_sub_epi32(normal, is_small, sum, _mm512_castps_si512(magic));
  const __m512i clamped = _mm512_mask_min_epu32(all_of(0x7f), is_number, code, all_of(0x7e));
  return _mm512_ternarylogic_epi32(_mm512_srli_epi32(bits, 24), all_of(0x80), clamped,
                                   a_and_b_or_c);
}

std::uint16_t largest_bf16(const std::byte* row, std::int64_t k) {
  const __m512i sign_free = _mm512_set1_epi16(0x7fff);
  const __m512i infinity = _mm512_set1_epi16(0x7f80);
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t i = 0; i < k; i += 32) {
    const __mmask32 lanes =
        k - i >= 32 ? ~__mmask32{0} : static_cast<__mmask32>((1U << (k - i)) - 1U);
    const __m512i x = _mm512_and_si512(_mm512_maskz_loadu_epi16(lanes, row + 2 * i), sign_free);
    const __mmask32 counted = _mm512_cmple_epu16_mask(x, infinity);
    largest = _mm512_mask_max_epu16(largest, counted, largest, x);
  }
  const __m512i words =
      _mm512_max_epu32(_mm512_and_si512(largest, all_of(0xffffU)), _mm512_srli_epi32(largest, 16));
  return static_cast<std::uint16_t>(_mm512_reduce_max_epu32(words));
}

inline __m128i convert_bf16(__m256i weights, __m512 factor) {
  const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu16_epi32(weights), 16);
  return _mm512_cvtepi32_epi8(to_e4m3(_mm512_mul_ps(_mm512_castsi512_ps(bits), factor)));
}

void from_bf16(const std::byte* row, std::int64_t k, float inverse, std::byte* out) {
  const __m512 factor = _mm512_set1_ps(inverse);
  std::int64_t i = 0;
  for (; i + 16 <= k; i += 16) {
    const __m256i weights = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 2 * i));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), convert_bf16(weights, factor));
  }
  if (i == k) return;
  const auto lanes = static_cast<__mmask16>((1U << (k - i)) - 1U);
  const __m256i weights = _mm256_maskz_loadu_epi16(lanes, row + 2 * i);
  _mm_mask_storeu_epi8(out + i, lanes, convert_bf16(weights, factor));
}

// Lane 2i has code i in its low bits, lane 2i + 1 code 8 + i; what lies above them is anything.
inline __m512i spread_codes(const std::byte* group) {
  long long pairs = 0;
  __builtin_memcpy(&pairs, group, sizeof pairs);
  const __m512i shifts =
      _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
  return _mm512_srlv_epi32(_mm512_set1_epi64(pairs), shifts);
}

inline __m512 magnitudes_of(__m512i codes) {
  const __m512 e2m1 = _mm512_setr_ps(0, .5F, 1, 1.5F, 2, 3, 4, 6, 0, .5F, 1, 1.5F, 2, 3, 4, 6);
  return _mm512_permutexvar_ps(codes, e2m1);
}

inline __m512 step_of(const Nvfp4Groups& groups, std::int64_t g) {
  return _mm512_set1_ps(groups.steps[static_cast<std::uint8_t>(groups.scales[g])]);
}

inline __m512i max_of_shifted(__m512i bytes, int by) {
  return _mm512_max_epu8(bytes, _mm512_srl_epi64(bytes, _mm_cvtsi32_si128(by)));
}

// Eight groups: the largest code of a group gives its largest weight.
float largest_nvfp4(const Nvfp4Groups& groups) {
  const __m512i low = _mm512_set1_epi8(7);
  const __m256 e2m1 = _mm256_setr_ps(0, .5F, 1, 1.5F, 2, 3, 4, 6);
  const __m256 sign_free = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  __m256 largest = _mm256_setzero_ps();
  for (std::int64_t g = 0; g < groups.count; g += 8) {
    const auto lanes =
        static_cast<__mmask8>(groups.count - g >= 8 ? 0xffU : (1U << (groups.count - g)) - 1U);
    const __m512i pairs = _mm512_maskz_loadu_epi64(lanes, groups.codes + 8 * g);
    const __m512i codes = _mm512_max_epu8(_mm512_and_si512(pairs, low),
                                          _mm512_and_si512(_mm512_srli_epi16(pairs, 4), low));
    const __m512i most = max_of_shifted(max_of_shifted(max_of_shifted(codes, 32), 16), 8);
    const __m256 values = _mm256_permutexvar_ps(_mm512_cvtepi64_epi32(most), e2m1);
    const __m256i scales = _mm256_cvtepu8_epi32(_mm_maskz_loadu_epi8(lanes, groups.scales + g));
    // Lanes without a group: code 0 of some scale, 0 or NaN.
    const __m256 steps = _mm256_i32gather_ps(groups.steps, scales, 4);
    const __m256 weights = _mm256_and_ps(_mm256_mul_ps(values, steps), sign_free);
    largest = _mm256_max_ps(weights, largest);  // the second of a pair with a NaN
  }
  return _mm512_reduce_max_ps(_mm512_zextps256_ps512(largest));
}

inline __m128i load_table(const Nvfp4Groups& groups, const Fp8Tables& tables, std::int64_t g) {
  const auto scale = static_cast<std::uint8_t>(groups.scales[g]);
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(tables.data() + scale));
}

// Four groups: 32 bytes of pairs to 64 codes of a byte each, looked up in four tables.
void look_up(const Nvfp4Groups& groups, const Fp8Tables& tables, std::byte* out) {
  const __m512i low = _mm512_set1_epi16(0x000f);
  const __m512i high = _mm512_set1_epi16(0x0f00);
  for (std::int64_t g = 0; g < groups.count; g += 4) {
    const std::int64_t left = groups.count - g < 4 ? groups.count - g : 4;
    const auto words = static_cast<__mmask16>((1U << (4 * left)) - 1U);  // pairs of 16 bits
    const __m512i pairs = _mm512_cvtepu8_epi16(
        _mm256_maskz_loadu_epi64(static_cast<__mmask8>((1U << left) - 1U), groups.codes + 8 * g));
    const __m512i codes = _mm512_or_si512(_mm512_and_si512(pairs, low),
                                          _mm512_and_si512(_mm512_slli_epi16(pairs, 4), high));
    __m512i table = _mm512_castsi128_si512(load_table(groups, tables, g));
    if (left > 1) table = _mm512_inserti32x4(table, load_table(groups, tables, g + 1), 1);
    if (left > 2) table = _mm512_inserti32x4(table, load_table(groups, tables, g + 2), 2);
    if (left > 3) table = _mm512_inserti32x4(table, load_table(groups, tables, g + 3), 3);
    _mm512_mask_storeu_epi32(out + 16 * g, words, _mm512_shuffle_epi8(table, codes));
  }
}

void convert_groups(const Nvfp4Groups& groups, float inverse, std::byte* out) {
  const __m512 factor = _mm512_set1_ps(inverse);
  const __m128i in_order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const __m512i spread = spread_codes(groups.codes + 8 * g);
    const __m512 weights = _mm512_mul_ps(magnitudes_of(spread), step_of(groups, g));
    const __m512i sign = _mm512_and_si512(_mm512_slli_epi32(spread, 4), all_of(0x80));
    const __m512i codes = _mm512_xor_si512(to_e4m3(_mm512_mul_ps(weights, factor)), sign);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * g),
                     _mm_shuffle_epi8(_mm512_cvtepi32_epi8(codes), in_order));
  }
}

// Of two scales at a time, from an even one on.
void make_tables(const float* steps, ScaleExtent extent, float inverse, Fp8Tables& tables) {
  const __m512 factor = _mm512_set1_ps(inverse);
  const __m512 e2m1 = _mm512_setr_ps(0, .5F, 1, 1.5F, 2, 3, 4, 6, 0, .5F, 1, 1.5F, 2, 3, 4, 6);
  const __m128i sign = _mm_set1_epi8(static_cast<char>(0x80));
  for (int scale = extent.first & ~1; scale <= extent.last; scale += 2) {
    const __m512 of_two = _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(steps[scale]),
                                               _mm512_set1_ps(steps[scale + 1]));
    const __m512 weights = _mm512_mul_ps(e2m1, of_two);
    const __m128i codes = _mm512_cvtepi32_epi8(to_e4m3(_mm512_mul_ps(weights, factor)));
    const __m128i negative = _mm_xor_si128(codes, sign);
    auto* const table = reinterpret_cast<__m128i*>(tables.data() + scale);
    _mm_storeu_si128(table, _mm_unpacklo_epi64(codes, negative));
    _mm_storeu_si128(table + 1, _mm_unpackhi_epi64(codes, negative));
  }
}

// Where a row has more groups than there are scales between its least and largest one, tables of
// these are made instead of each code.
void from_nvfp4(const Nvfp4Groups& groups, float inverse, std::byte* out) {
  const ScaleExtent extent = scale_extent(groups);
  if (extent.last - extent.first >= groups.count) return convert_groups(groups, inverse, out);
  Fp8Tables tables;
  make_tables(groups.steps, extent, inverse, tables);
  look_up(groups, tables, out);
}

}  // namespace

const Fp8Kernels fp8_kernels_avx512 = {.largest_bf16 = largest_bf16,
                                       .from_bf16 = from_bf16,
                                       .largest_nvfp4 = largest_nvfp4,
                                       .from_nvfp4 = from_nvfp4,
                                       .look_up = look_up};

}  // namespace fewbit

FEWBIT_ISA_END

#endif
