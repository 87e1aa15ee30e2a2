// SPDX-License-Identifier: Apache-2.0
// Eight weights at a time: half a group of NVFP4 is one vector.
#include "layout/pack_fast_fp8.hpp"

#if defined(__x86_64__)

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx2")

namespace fewbit {
namespace {

inline __m256i all_of(unsigned value) { return _mm256_set1_epi32(static_cast<int>(value)); }

// As to_e4m3 of the portable variant: a code in each lane. Magnitudes are positive as signed words.
inline __m256i to_e4m3(__m256 x) {
  const __m256 magic = _mm256_set1_ps(0x1p14F);
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i magnitude = _mm256_and_si256(bits, all_of(0x7fffffffU));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(magnitude, 20), all_of(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(magnitude, all_of(0x7ffffU)), odd);
  const __m256i normal = _mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), all_of(120U << 3));
  const __m256i small =
      _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), magic)),
                       _mm256_castps_si256(magic));
  const __m256i is_small = _mm256_cmpgt_epi32(all_of(121U << 23), magnitude);
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, all_of(0x7f800000U));
  const __m256i code = _mm256_min_epu32(_mm256_blendv_epi8(normal, small, is_small), all_of(0x7e));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), all_of(0x80));
  return _mm256_or_si256(_mm256_blendv_epi8(code, all_of(0x7f), is_nan), sign);
}

// The codes of sixteen lanes, a byte each, in order.
inline __m128i narrow(__m256i first, __m256i second) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xd8);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

std::uint16_t largest_bf16(const std::byte* row, std::int64_t k) {
  const __m256i sign_free = _mm256_set1_epi16(0x7fff);
  const __m256i infinity = _mm256_set1_epi16(0x7f80);
  __m256i largest = _mm256_setzero_si256();
  std::int64_t i = 0;
  for (; i + 16 <= k; i += 16) {
    const __m256i x = _mm256_and_si256(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + 2 * i)), sign_free);
    const __m256i nan = _mm256_cmpgt_epi16(x, infinity);
    largest = _mm256_max_epi16(largest, _mm256_andnot_si256(nan, x));
  }
  std::uint16_t lanes[16];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), largest);
  std::uint16_t most = 0;
  for (const std::uint16_t lane : lanes) most = lane > most ? lane : most;
  const std::uint16_t rest = fp8_kernels_generic.largest_bf16(row + 2 * i, k - i);
  return rest > most ? rest : most;
}

inline __m256i convert_bf16(const std::byte* weights, __m256 factor) {
  const __m256i bits =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)));
  return to_e4m3(_mm256_mul_ps(_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16)), factor));
}

void from_bf16(const std::byte* row, std::int64_t k, float inverse, std::byte* out) {
  const __m256 factor = _mm256_set1_ps(inverse);
  std::int64_t i = 0;
  for (; i + 16 <= k; i += 16) {
    const __m256i first = convert_bf16(row + 2 * i, factor);
    const __m256i second = convert_bf16(row + 2 * i + 16, factor);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), narrow(first, second));
  }
  fp8_kernels_generic.from_bf16(row + 2 * i, k - i, inverse, out + i);
}

// Codes 0 to 7 or 8 to 15 of a group in the low bits of the lanes; above them is anything.
inline __m256i spread_codes(const std::byte* half_group) {
  int pairs = 0;
  __builtin_memcpy(&pairs, half_group, sizeof pairs);
  return _mm256_srlv_epi32(_mm256_set1_epi32(pairs),
                           _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
}

// By the low three bits.
inline __m256 magnitudes_of(__m256i codes) {
  return _mm256_permutevar8x32_ps(_mm256_setr_ps(0, .5F, 1, 1.5F, 2, 3, 4, 6), codes);
}

inline __m256 step_of(const Nvfp4Groups& groups, std::int64_t g) {
  return _mm256_set1_ps(groups.steps[static_cast<std::uint8_t>(groups.scales[g])]);
}

float largest_nvfp4(const Nvfp4Groups& groups) {
  const __m256 sign_free = _mm256_castsi256_ps(all_of(0x7fffffffU));
  __m256 largest = _mm256_setzero_ps();
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const __m256 step = step_of(groups, g);
    for (int half = 0; half < 2; ++half) {
      const __m256 codes = magnitudes_of(spread_codes(groups.codes + 8 * g + 4 * half));
      // The second of a pair with a NaN.
      largest = _mm256_max_ps(_mm256_and_ps(_mm256_mul_ps(codes, step), sign_free), largest);
    }
  }
  float lanes[8];
  _mm256_storeu_ps(lanes, largest);
  float most = 0.0F;
  for (const float lane : lanes) most = lane > most ? lane : most;
  return most;
}

inline __m256i convert_half(const std::byte* half_group, __m256 step, __m256 factor) {
  const __m256i spread = spread_codes(half_group);
  const __m256 weights = _mm256_mul_ps(magnitudes_of(spread), step);
  const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(spread, 4), all_of(0x80));
  return _mm256_xor_si256(to_e4m3(_mm256_mul_ps(weights, factor)), sign);
}

void convert_groups(const Nvfp4Groups& groups, float inverse, std::byte* out) {
  const __m256 factor = _mm256_set1_ps(inverse);
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const __m256 step = step_of(groups, g);
    const std::byte* const codes = groups.codes + 8 * g;
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(out + 16 * g),
        narrow(convert_half(codes, step, factor), convert_half(codes + 4, step, factor)));
  }
}

void look_up(const Nvfp4Groups& groups, const Fp8Tables& tables, std::byte* out) {
  const __m128i nibble = _mm_set1_epi8(0x0f);
  for (std::int64_t g = 0; g < groups.count; ++g) {
    const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(groups.codes + 8 * g));
    const __m128i codes = _mm_and_si128(_mm_unpacklo_epi8(pairs, _mm_srli_epi16(pairs, 4)), nibble);
    const auto scale = static_cast<std::uint8_t>(groups.scales[g]);
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(tables.data() + scale));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * g), _mm_shuffle_epi8(table, codes));
  }
}

void make_tables(const float* steps, ScaleExtent extent, float inverse, Fp8Tables& tables) {
  const __m256 factor = _mm256_set1_ps(inverse);
  const __m256 e2m1 = _mm256_setr_ps(0, .5F, 1, 1.5F, 2, 3, 4, 6);
  const __m128i sign =
      _mm_setr_epi32(0, 0, static_cast<int>(0x80808080U), static_cast<int>(0x80808080U));
  for (int scale = extent.first; scale <= extent.last; ++scale) {
    const __m256 weights = _mm256_mul_ps(e2m1, _mm256_set1_ps(steps[scale]));
    const __m256i codes = to_e4m3(_mm256_mul_ps(weights, factor));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(tables.data() + scale),
                     _mm_xor_si128(narrow(codes, codes), sign));
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

const Fp8Kernels fp8_kernels_avx2 = {.largest_bf16 = largest_bf16,
                                     .from_bf16 = from_bf16,
                                     .largest_nvfp4 = largest_nvfp4,
                                     .from_nvfp4 = from_nvfp4,
                                     .look_up = look_up};

}  // namespace fewbit

FEWBIT_ISA_END

#endif
