// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "core/isa_region.hpp"
#include "kernels/cpu/lane16.hpp"

#if defined(__x86_64__)
FEWBIT_ISA_BEGIN("avx2,fma,f16c")

namespace fewbit {
namespace {

#include "kernels/cpu/lane16_loops.hpp"

#define FEWBIT_INLINE static inline __attribute__((always_inline))

struct Avx2 {
  struct Floats {
    __m256 low, high;  // rows 0-7 and 8-15
  };
  struct Words {
    __m256i low, high;
  };
  static constexpr int direct_tokens = 4;
  // 2 x 6 accumulators, 2 weights, 1 broadcast of 16 registers.
  static constexpr int block_tokens = 6;
  static constexpr int prefetch_bytes = 2048;
  static constexpr int direct_chains(int tokens) { return tokens == 1 ? 2 : 1; }
  static constexpr bool raw_e4m3 = false;
  using NanRows = bool;

  FEWBIT_INLINE Floats zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  FEWBIT_INLINE Floats same(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  FEWBIT_INLINE Floats load(const float* p) { return {_mm256_load_ps(p), _mm256_load_ps(p + 8)}; }
  FEWBIT_INLINE void store(float* p, const Floats& x) {
    _mm256_store_ps(p, x.low);
    _mm256_store_ps(p + 8, x.high);
  }
  FEWBIT_INLINE Floats mul(const Floats& a, const Floats& b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  FEWBIT_INLINE Floats sub(const Floats& a, const Floats& b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  FEWBIT_INLINE Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }

  FEWBIT_INLINE Words load_words(const std::uint8_t* p) {
    const auto* words = reinterpret_cast<const __m256i*>(p);
    return {_mm256_load_si256(words), _mm256_load_si256(words + 1)};
  }
  FEWBIT_INLINE Words same_words(std::uint32_t x) {
    const __m256i words = _mm256_set1_epi32(static_cast<int>(x));
    return {words, words};
  }
  FEWBIT_INLINE Words flip(const Words& a, const Words& b) {
    return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
  }

  // The permute reads the low 3 bits, the magnitude; bit 3 is moved into the sign.
  FEWBIT_INLINE __m256 e2m1_half(__m256i words, int i) {
    const __m256 table = _mm256_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);
    const __m256 magnitude = _mm256_permutevar8x32_ps(table, _mm256_srli_epi32(words, 4 * i));
    const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(words, 28 - 4 * i),
                                          _mm256_set1_epi32(static_cast<int>(0x80000000U)));
    return _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign));
  }
  FEWBIT_INLINE Floats e2m1(const Words& words, int i) {
    return {e2m1_half(words.low, i), e2m1_half(words.high, i)};
  }
  FEWBIT_INLINE __m256 int4_half(__m256i words, int i) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 28 - 4 * i), 28));
  }
  FEWBIT_INLINE Floats int4(const Words& words, int i) {
    return {int4_half(words.low, i), int4_half(words.high, i)};
  }

  FEWBIT_INLINE __m128i load_bytes(const std::uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  FEWBIT_INLINE Words load_any_words(const std::uint8_t* p) {
    const auto* words = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(words), _mm256_loadu_si256(words + 1)};
  }
  FEWBIT_INLINE Words load_halves(const std::uint8_t* p) {
    return {_mm256_cvtepu16_epi32(load_bytes(p)), _mm256_cvtepu16_epi32(load_bytes(p + 16))};
  }
  FEWBIT_INLINE Words right(const Words& words, int i) {
    return {_mm256_srli_epi32(words.low, i), _mm256_srli_epi32(words.high, i)};
  }
  FEWBIT_INLINE Words left(const Words& words, int i) {
    return {_mm256_slli_epi32(words.low, i), _mm256_slli_epi32(words.high, i)};
  }
  FEWBIT_INLINE Words right_by(const Words& words, int i) {
    const __m128i count = _mm_cvtsi32_si128(i);
    return {_mm256_srl_epi32(words.low, count), _mm256_srl_epi32(words.high, count)};
  }
  FEWBIT_INLINE Words masked(const Words& words, std::uint32_t bits) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(bits));
    return {_mm256_and_si256(words.low, mask), _mm256_and_si256(words.high, mask)};
  }
  FEWBIT_INLINE Floats floats_of(const Words& words) {
    return {_mm256_cvtepi32_ps(words.low), _mm256_cvtepi32_ps(words.high)};
  }
  FEWBIT_INLINE Floats uint6_minus(const Words& words, int i, const Floats& zero) {
    return sub(floats_of(masked(right(words, 8 * i), 63)), zero);
  }
  FEWBIT_INLINE Words either(const Words& a, const Words& b) {
    return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
  }
  FEWBIT_INLINE Floats look_up(__m256 table, const Words& codes) {
    return {_mm256_permutevar8x32_ps(table, codes.low),
            _mm256_permutevar8x32_ps(table, codes.high)};
  }
  FEWBIT_INLINE Floats nf3(const Words& codes) {
    return look_up(
        _mm256_setr_ps(-1.0F, -0.6047F, -0.3563F, -0.1275F, 0.1275F, 0.3563F, 0.6047F, 1.0F),
        codes);
  }
  FEWBIT_INLINE Floats ternary(const Words& codes) {
    return look_up(_mm256_setr_ps(-1.0F, 0.0F, 1.0F, 2.0F, -1.0F, 0.0F, 1.0F, 2.0F), codes);
  }

  FEWBIT_INLINE __m256 uint4_half(__m256i words, int i) {
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srli_epi32(words, 4 * i), _mm256_set1_epi32(15)));
  }
  FEWBIT_INLINE Floats uint4_minus(const Words& words, int i, const Floats& zero) {
    return sub({uint4_half(words.low, i), uint4_half(words.high, i)}, zero);
  }

  FEWBIT_INLINE Floats int8(const std::uint8_t* p, int flip) {
    const __m128i bytes = _mm_xor_si128(load_bytes(p), _mm_set1_epi8(static_cast<char>(flip)));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  FEWBIT_INLINE Floats halves(__m256i half) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
  }
  // e4m3 bits shifted into f16 are the value times 2^-8, subnormals included.
  FEWBIT_INLINE Floats e4m3(const std::uint8_t* p) {
    const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_bytes(p)), 7);
    const __m256i half = _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<short>(0xbf80)));
    const __m256i magnitude = _mm256_set1_epi16(0x3f80);
    const __m256i nan =
        _mm256_and_si256(_mm256_cmpeq_epi16(_mm256_and_si256(half, magnitude), magnitude),
                         _mm256_set1_epi16(0x7e00));
    return mul(halves(_mm256_or_si256(half, nan)), same(256.0F));
  }
  // The byte is the exponent of the result but for 0 (2^-127, subnormal) and 255 (NaN).
  FEWBIT_INLINE __m256 e8m0_half(__m128i bytes) {
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23);
    const __m256i end = _mm256_or_si256(_mm256_cmpeq_epi32(bits, _mm256_setzero_si256()),
                                        _mm256_cmpeq_epi32(bits, _mm256_set1_epi32(0x7f800000)));
    return _mm256_castsi256_ps(
        _mm256_or_si256(bits, _mm256_and_si256(end, _mm256_set1_epi32(0x00400000))));
  }
  FEWBIT_INLINE Floats e8m0(const std::uint8_t* p) {
    const __m128i bytes = load_bytes(p);
    return {e8m0_half(bytes), e8m0_half(_mm_srli_si128(bytes, 8))};
  }
  FEWBIT_INLINE Floats f16(const std::uint8_t* p) {
    return halves(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  FEWBIT_INLINE __m256 bf16_half(const std::uint8_t* p) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_bytes(p)), 16));
  }
  FEWBIT_INLINE Floats bf16(const std::uint8_t* p) { return {bf16_half(p), bf16_half(p + 16)}; }
  FEWBIT_INLINE Floats f32(const std::uint8_t* p) {
    const auto* values = reinterpret_cast<const float*>(p);
    return {_mm256_loadu_ps(values), _mm256_loadu_ps(values + 8)};
  }
};

#undef FEWBIT_INLINE

}  // namespace

Lane16Fn* lane16_avx2(Lane16Codes codes) { return kernel_of<Avx2>(codes); }

}  // namespace fewbit
FEWBIT_ISA_END
#endif
