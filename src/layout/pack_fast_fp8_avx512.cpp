// SPDX-License-Identifier: Apache-2.0
// Sixteen weights at a time: a group of NVFP4 is one vector.
#include "layout/pack_fast_fp8.hpp"

#if defined(__x86_64__)

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512vl,avx512vbmi")

namespace fewbit {
namespace {

inline __m512i all_of(unsigned value) { return _mm512_set1_epi32(static_cast<int>(value)); }

// Past the caches, which would read the line before it is written.
inline void put_line(std::byte* at, __m512i x) {
  if (reinterpret_cast<std::uintptr_t>(at) % 64 == 0) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(at), x);
  } else {
    _mm512_storeu_si512(at, x);
  }
}

inline void fetch(const std::byte* at) {
  _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
}

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

inline __m512i scaled(__m512i bits, __m512 factor) {
  return to_e4m3(_mm512_mul_ps(_mm512_castsi512_ps(bits), factor));
}

// 64 weights to their codes: of each vector of 32, the even and the odd ones.
inline __m512i convert_line(__m512i first, __m512i second, __m512 factor) {
  constexpr int any_of_three = 0xfe;
  const __m512i odd = all_of(0xffff0000U);
  const __m512i a = scaled(_mm512_slli_epi32(first, 16), factor);
  const __m512i b = scaled(_mm512_and_si512(first, odd), factor);
  const __m512i c = scaled(_mm512_slli_epi32(second, 16), factor);
  const __m512i d = scaled(_mm512_and_si512(second, odd), factor);
  const __m512i pairs =
      _mm512_ternarylogic_epi32(a, _mm512_slli_epi32(b, 8), _mm512_slli_epi32(c, 16), any_of_three);
  // Words 2i are codes 2i and 2i + 1, words 2i + 1 those of the second 32.
  const __m512i all = _mm512_or_si512(pairs, _mm512_slli_epi32(d, 24));
  const __m512i in_order =
      _mm512_set_epi16(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1, 30, 28, 26, 24,
                       22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  return _mm512_permutexvar_epi16(in_order, all);
}

inline __mmask32 first_of(std::int64_t count) {
  if (count >= 32) return ~__mmask32{0};
  return count <= 0 ? 0 : static_cast<__mmask32>((1U << count) - 1U);
}

void from_bf16(const std::byte* row, std::int64_t k, float inverse, std::byte* out) {
  const __m512 factor = _mm512_set1_ps(inverse);
  const std::byte* const next = row + 2 * k;
  std::int64_t i = 0;
  for (; i + 64 <= k; i += 64) {
    fetch(next + 2 * i);
    fetch(next + 2 * i + 64);
    put_line(out + i, convert_line(_mm512_loadu_si512(row + 2 * i),
                                   _mm512_loadu_si512(row + 2 * i + 64), factor));
  }
  if (i == k) return;
  const std::int64_t left = k - i;
  const __m512i codes =
      convert_line(_mm512_maskz_loadu_epi16(first_of(left), row + 2 * i),
                   _mm512_maskz_loadu_epi16(first_of(left - 32), row + 2 * i + 64), factor);
  const __mmask64 mine = (std::uint64_t{1} << left) - 1U;
  _mm512_mask_storeu_epi8(out + i, mine, codes);
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

// The larger code of each byte.
inline __m512i larger_codes(const std::byte* pairs) {
  const __m512i low = _mm512_set1_epi8(7);
  const __m512i x = _mm512_loadu_si512(pairs);
  return _mm512_max_epu8(_mm512_and_si512(x, low), _mm512_and_si512(_mm512_srli_epi16(x, 4), low));
}

// Of 16 groups the largest codes of each half of a group.
inline __m512i halves_of(const std::byte* pairs) {
  const __m512 a = _mm512_castsi512_ps(larger_codes(pairs));
  const __m512 b = _mm512_castsi512_ps(larger_codes(pairs + 64));
  return _mm512_max_epu8(_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                         _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd)));
}

inline __m512i max_with_right(__m512i x, unsigned by) {
  return _mm512_max_epu8(x, _mm512_srli_epi32(x, by));
}
inline __m512i max_with_left(__m512i x, unsigned by) {
  return _mm512_max_epu8(x, _mm512_slli_epi32(x, by));
}

// The largest code of each of 64 groups, in the order of group_order.
inline __m512i largest_codes(const std::byte* pairs) {
  const __m512i a = max_with_right(max_with_right(halves_of(pairs), 16), 8);       // in bytes 0
  const __m512i b = max_with_left(max_with_right(halves_of(pairs + 128), 16), 8);  // 1
  const __m512i c = max_with_right(max_with_left(halves_of(pairs + 256), 16), 8);  // 2
  const __m512i d = max_with_left(max_with_left(halves_of(pairs + 384), 16), 8);   // 3
  const __m512i ab = _mm512_mask_blend_epi8(0x2222222222222222U, a, b);
  const __m512i cd = _mm512_mask_blend_epi8(0x8888888888888888U, c, d);
  return _mm512_mask_blend_epi16(0xaaaaaaaaU, ab, cd);
}

struct GroupOrder {
  std::uint8_t group[64];
};
constexpr GroupOrder make_group_order() {
  GroupOrder order{};
  for (int i = 0; i < 64; ++i) {
    const int lane = i / 16;
    const int word = i / 4 % 4;
    order.group[i] = static_cast<std::uint8_t>(16 * (i % 4) + word / 2 * 8 + 2 * lane + word % 2);
  }
  return order;
}
constexpr GroupOrder group_order = make_group_order();

// Of each code the largest magnitude of a scale byte that it is the largest code of a group with,
// in 64 parts; 0: none.
struct LargestScales {
  __m512i of_code[8];
};

inline void add_groups(const std::byte* pairs, const std::byte* scales, LargestScales& largest) {
  const __m512i codes = largest_codes(pairs);
  const __m512i nan = _mm512_set1_epi8(0x7f);
  const __m512i magnitudes = _mm512_and_si512(_mm512_loadu_si512(scales), nan);
  const __m512i numbers =
      _mm512_maskz_mov_epi8(_mm512_cmpneq_epu8_mask(magnitudes, nan), magnitudes);
  const __m512i in_order = _mm512_permutexvar_epi8(_mm512_loadu_si512(group_order.group), numbers);
#pragma GCC unroll 8
  for (int code = 1; code < 8; ++code) {
    const __mmask64 mine = _mm512_cmpeq_epu8_mask(codes, _mm512_set1_epi8(static_cast<char>(code)));
    __m512i& most = largest.of_code[code];
    most = _mm512_mask_max_epu8(most, mine, most, in_order);
  }
}

inline int largest_byte(__m512i x) {
  const __m512i pairs = max_with_right(x, 8);
  const __m512i words = max_with_right(pairs, 16);
  return static_cast<int>(_mm512_reduce_max_epu32(_mm512_and_si512(words, all_of(0xffU))));
}

// The largest code of a group gives its largest weight, and of groups with the same largest code
// the one with the largest scale, since products with it rise with the scale.
float largest_nvfp4(const Nvfp4Groups& groups) {
  constexpr std::int64_t step = 64;
  constexpr float e2m1[8] = {0, .5F, 1, 1.5F, 2, 3, 4, 6};
  LargestScales largest{};
  std::int64_t g = 0;
  for (; g + step <= groups.count; g += step) {
    add_groups(groups.codes + 8 * g, groups.scales + g, largest);
  }
  if (g < groups.count) {
    std::byte pairs[8 * step] = {};
    std::byte scales[step] = {};
    const auto left = static_cast<std::size_t>(groups.count - g);
    __builtin_memcpy(pairs, groups.codes + 8 * g, 8 * left);
    __builtin_memcpy(scales, groups.scales + g, left);
    add_groups(pairs, scales, largest);
  }
  float result = 0.0F;
  for (int code = 1; code < 8; ++code) {
    const float weight = e2m1[code] * groups.steps[largest_byte(largest.of_code[code])];
    const float magnitude = weight < 0.0F ? -weight : weight;
    result = magnitude > result ? magnitude : result;  // not of a NaN
  }
  return result;
}

inline __m128i load_table(const Nvfp4Groups& groups, const Fp8Tables& tables, std::int64_t g) {
  const auto scale = static_cast<std::uint8_t>(groups.scales[g]);
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(tables.data() + scale));
}

// What is read after these groups: the next row's.
inline void fetch_next(const Nvfp4Groups& groups, std::int64_t g) {
  fetch(groups.codes + 8 * (groups.count + g));
  if (g % 64 == 0) fetch(groups.scales + groups.count + g);
}

// The codes of four groups, a byte each, looked up in four tables.
inline __m512i look_up_four(const Nvfp4Groups& groups, const Fp8Tables& tables, std::int64_t g,
                            __m256i pairs) {
  constexpr int a_or_b_and_c = 0xf8;
  const __m512i low = _mm512_set1_epi16(0x000f);
  const __m512i high = _mm512_set1_epi16(0x0f00);
  const __m512i wide = _mm512_cvtepu8_epi16(pairs);
  const __m512i codes = _mm512_ternarylogic_epi32(_mm512_and_si512(wide, low),
                                                  _mm512_slli_epi16(wide, 4), high, a_or_b_and_c);
  __m512i table = _mm512_castsi128_si512(load_table(groups, tables, g));
  table = _mm512_inserti32x4(table, load_table(groups, tables, g + 1), 1);
  table = _mm512_inserti32x4(table, load_table(groups, tables, g + 2), 2);
  table = _mm512_inserti32x4(table, load_table(groups, tables, g + 3), 3);
  return _mm512_shuffle_epi8(table, codes);
}

void look_up(const Nvfp4Groups& all, const Fp8Tables& tables, std::byte* out) {
  const Nvfp4Groups groups = all;  // out may be anything
  std::int64_t g = 0;
  for (; g + 8 <= groups.count; g += 8) {
    fetch_next(groups, g);
    const auto* const pairs = reinterpret_cast<const __m256i*>(groups.codes + 8 * g);
    put_line(out + 16 * g, look_up_four(groups, tables, g, _mm256_loadu_si256(pairs)));
    put_line(out + 16 * g + 64, look_up_four(groups, tables, g + 4, _mm256_loadu_si256(pairs + 1)));
  }
  for (; g < groups.count; ++g) {
    const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(groups.codes + 8 * g));
    const __m128i wide = _mm_cvtepu8_epi16(pairs);
    const __m128i codes =
        _mm_or_si128(_mm_and_si128(wide, _mm_set1_epi16(0x000f)),
                     _mm_and_si128(_mm_slli_epi16(wide, 4), _mm_set1_epi16(0x0f00)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 16 * g),
                     _mm_shuffle_epi8(load_table(groups, tables, g), codes));
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
