// SPDX-License-Identifier: Apache-2.0
// The 16 lanes of lane16 in AVX-512. Included inside the target region of a level, after
// lane16_loops.hpp, so it includes nothing itself.
#pragma once

#define FEWBIT_INLINE static inline __attribute__((always_inline))

struct Avx512 {
  using Floats = __m512;
  using Words = __m512i;
  static constexpr int direct_tokens = 24;
  [[maybe_unused]] static constexpr int block_tokens = 24;
  static constexpr int prefetch_bytes = 8192;
  static constexpr int direct_chains(int tokens) {
    return tokens <= 1 ? 8 : tokens <= 2 ? 4 : tokens <= 6 ? 2 : 1;
  }

  FEWBIT_INLINE Floats zero() { return _mm512_setzero_ps(); }
  FEWBIT_INLINE Floats same(float x) { return _mm512_set1_ps(x); }
  FEWBIT_INLINE Floats load(const float* p) { return _mm512_load_ps(p); }
  FEWBIT_INLINE void store(float* p, Floats x) { _mm512_store_ps(p, x); }
  FEWBIT_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  FEWBIT_INLINE Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  FEWBIT_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

  // In a register: compilers would rather read the same words for every shift, and that took 19 %
  // longer (two tokens of mxfp4 in dot products, an EPYC of 2024).
  FEWBIT_INLINE Words kept(Words words) {
    asm("" : "+v"(words));
    return words;
  }
  FEWBIT_INLINE Words load_words(const std::uint8_t* p) { return kept(_mm512_load_si512(p)); }
  FEWBIT_INLINE Words same_words(std::uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  FEWBIT_INLINE Words flip(Words a, Words b) { return _mm512_xor_si512(a, b); }
  // The permutes read the low 4 bits of a word only.
  FEWBIT_INLINE Floats e2m1(Words words, int i) {
    const __m512 table = _mm512_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F,
                                        -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(words, static_cast<unsigned>(4 * i)), table);
  }
  FEWBIT_INLINE Floats int4(Words words, int i) {
    const __m512 table = _mm512_setr_ps(0.0F, 1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F, 7.0F, -8.0F,
                                        -7.0F, -6.0F, -5.0F, -4.0F, -3.0F, -2.0F, -1.0F);
    return _mm512_permutexvar_ps(_mm512_srli_epi32(words, static_cast<unsigned>(4 * i)), table);
  }

  FEWBIT_INLINE Words load_any_words(const std::uint8_t* p) { return kept(_mm512_loadu_si512(p)); }
  FEWBIT_INLINE Words load_halves(const std::uint8_t* p) {
    return kept(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))));
  }
  FEWBIT_INLINE Words right(Words words, int i) {
    return _mm512_srli_epi32(words, static_cast<unsigned>(i));
  }
  FEWBIT_INLINE Words left(Words words, int i) {
    return _mm512_slli_epi32(words, static_cast<unsigned>(i));
  }
  FEWBIT_INLINE Words right_by(Words words, int i) {
    return _mm512_srl_epi32(words, _mm_cvtsi32_si128(i));
  }
  FEWBIT_INLINE Words either(Words a, Words b) { return _mm512_or_si512(a, b); }
  FEWBIT_INLINE Words masked(Words words, std::uint32_t mask) {
    return _mm512_and_si512(words, same_words(mask));
  }
  FEWBIT_INLINE Floats floats_of(Words words) { return _mm512_cvtepi32_ps(words); }
  // Tables repeat where codes have fewer bits than the permute reads.
  FEWBIT_INLINE Floats nf3(Words codes) {
    const __m512 table = _mm512_broadcast_f32x8(
        _mm256_setr_ps(-1.0F, -0.6047F, -0.3563F, -0.1275F, 0.1275F, 0.3563F, 0.6047F, 1.0F));
    return _mm512_permutexvar_ps(codes, table);
  }
  FEWBIT_INLINE Floats ternary(Words codes) {
    const __m512 table = _mm512_broadcast_f32x4(_mm_setr_ps(-1.0F, 0.0F, 1.0F, 2.0F));
    return _mm512_permutexvar_ps(codes, table);
  }

  // The nibble becomes the low bits of a float of 2^(23 - 4 i), whose last place is then 1 there;
  // the difference is exact. Nibbles above the significand are shifted down first.
  FEWBIT_INLINE Floats uint4_minus(Words words, int i, Floats zero) {
    const int at = i < 5 ? i : i - 3;
    const Words low = i < 5 ? words : _mm512_srli_epi32(words, 12);
    const Words magic = _mm512_set1_epi32((150 - 4 * at) << 23);
    const Words bits = _mm512_ternarylogic_epi32(low, _mm512_set1_epi32(15 << (4 * at)), magic,
                                                 0xea);  // low & mask | magic
    return _mm512_sub_ps(_mm512_castsi512_ps(bits),
                         _mm512_add_ps(_mm512_castsi512_ps(magic), zero));
  }

  // The same of the low 6 bits of byte i, the others of the byte are 0.
  FEWBIT_INLINE Floats uint6_minus(Words words, int i, Floats zero) {
    const int at = i < 3 ? i : 2;
    const Words low = i < 3 ? words : _mm512_srli_epi32(words, 8);
    const Words magic = _mm512_set1_epi32((150 - 8 * at) << 23);
    const Words bits =
        _mm512_ternarylogic_epi32(low, _mm512_set1_epi32(63 << (8 * at)), magic, 0xea);
    return _mm512_sub_ps(_mm512_castsi512_ps(bits),
                         _mm512_add_ps(_mm512_castsi512_ps(magic), zero));
  }

  FEWBIT_INLINE __m128i load_bytes(const std::uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  FEWBIT_INLINE Floats int8(const std::uint8_t* p, int flip) {
    const __m128i bytes = _mm_xor_si128(load_bytes(p), _mm_set1_epi8(static_cast<char>(flip)));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
  static constexpr bool raw_e4m3 = true;
  using NanRows = __mmask64;  // four rounds of 16 rows
  FEWBIT_INLINE void note_nan(NanRows& rows, const std::uint8_t* cell) {
#pragma GCC unroll 4
    for (int i = 0; i < 256; i += 64) {
      const __m512i magnitude =
          _mm512_or_si512(_mm512_load_si512(cell + i), _mm512_set1_epi8(static_cast<char>(0x80)));
      rows |= _mm512_cmpeq_epi8_mask(magnitude, _mm512_set1_epi8(static_cast<char>(0xff)));
    }
  }
  FEWBIT_INLINE Floats spoil(Floats x, NanRows rows) {
    const auto row = static_cast<__mmask16>(rows | rows >> 16 | rows >> 32 | rows >> 48);
    return _mm512_mask_mov_ps(x, row, _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000)));
  }
  FEWBIT_INLINE __m256i e4m3_half(const std::uint8_t* p) {
    const __m256i shifted = _mm256_slli_epi16(_mm256_cvtepi8_epi16(load_bytes(p)), 7);
    return _mm256_and_si256(shifted, _mm256_set1_epi16(static_cast<short>(0xbf80)));
  }
  FEWBIT_INLINE Floats e4m3_raw(const std::uint8_t* p) { return _mm512_cvtph_ps(e4m3_half(p)); }
  // e4m3 bits shifted into f16 are the value times 2^-8, subnormals included.
  FEWBIT_INLINE Floats e4m3(const std::uint8_t* p) {
    __m256i half = e4m3_half(p);
    const __m256i magnitude = _mm256_set1_epi16(0x3f80);
    const __mmask16 nan = _mm256_cmpeq_epi16_mask(_mm256_and_si256(half, magnitude), magnitude);
    half = _mm256_mask_mov_epi16(half, nan, _mm256_set1_epi16(0x7e00));
    return _mm512_mul_ps(_mm512_cvtph_ps(half), _mm512_set1_ps(256.0F));
  }
  // The byte is the exponent of the result but for 0 (2^-127, subnormal) and 255 (NaN).
  FEWBIT_INLINE Floats e8m0(const std::uint8_t* p) {
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(load_bytes(p)), 23);
    const __m512i ends = _mm512_set1_epi32(0x7f800000);
    const __mmask16 end = _mm512_testn_epi32_mask(bits, ends) | _mm512_cmpeq_epi32_mask(bits, ends);
    return _mm512_castsi512_ps(
        _mm512_mask_or_epi32(bits, end, bits, _mm512_set1_epi32(0x00400000)));
  }
  FEWBIT_INLINE Floats f16(const std::uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  FEWBIT_INLINE Floats bf16(const std::uint8_t* p) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  FEWBIT_INLINE Floats f32(const std::uint8_t* p) { return _mm512_loadu_ps(p); }
};

#undef FEWBIT_INLINE
