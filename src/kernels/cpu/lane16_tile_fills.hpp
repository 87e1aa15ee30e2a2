// SPDX-License-Identifier: Apache-2.0
// How a cell (16 k of 16 rows) of lane16 codes becomes half a tile: 8 lines of 32 bf16, line 4 q +
// i the pairs (k = 8 q + i, k = 8 q + i + 4) of the 16 rows. Included inside a target region with
// AVX-512, after lane16_loops.hpp and lane16_avx512_lanes.hpp.
//
// A fill is made for one block; cell(c, lines) writes cell c. in_weights: scales are in the values,
// and ordinary(block) says whether it can.
#pragma once

#define FEWBIT_INLINE static inline __attribute__((always_inline))
#define FEWBIT_MEMBER inline __attribute__((always_inline))

FEWBIT_INLINE void store_line(std::uint16_t* lines, int line, __m512i words) {
  _mm512_store_si512(lines + line * 32, words);
}

// e4m3 with its NaN in place.
template <class L>
struct ExactE4m3Cell : ByteCell<L> {
  FEWBIT_INLINE void load(ExactE4m3Cell& cell, const std::uint8_t* block, std::int64_t index,
                          bool /*offset*/) {
    cell.codes = block + index * 256;
  }
  FEWBIT_INLINE typename L::Floats value(const ExactE4m3Cell& cell, int i) {
    return L::e4m3(cell.codes + i * 16);
  }
};

// Any kind, by f32 whose upper halves are exact.
template <class K>
struct CellFill {
  static constexpr bool in_weights = false;
  static constexpr std::int64_t cell_bytes = K::Cell::bytes;
  BlockPlace at;
  std::int64_t group_cells;
  const Lane16Blocks* weight;
  explicit CellFill(const Lane16Blocks& block)
      : at(block_place<K>(block, 0)),
        group_cells(K::fixed_cells != 0 ? K::fixed_cells : block.group / 16),
        weight(&block) {}
  static bool ordinary(const Lane16Blocks& /*block*/) { return true; }
  FEWBIT_MEMBER const std::uint8_t* codes(std::int64_t c) const {
    return at.codes + c * cell_bytes;
  }
  FEWBIT_MEMBER void cell(std::int64_t c, std::uint16_t* lines) const {
    const auto zero = group_zero<Avx512, K>(*weight, at, c / group_cells);
    typename K::Cell cell;
    K::Cell::load(cell, at.codes, c, weight->offset_codes);
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) {
      const int k = line / 4 * 8 + line % 4;
      const __m512i low = _mm512_castps_si512(weights_at<Avx512, K>(cell, k, zero));
      const __m512i high = _mm512_castps_si512(weights_at<Avx512, K>(cell, k + 4, zero));
      store_line(lines, line,
                 _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(low, 16), high));
    }
  }
};

// Values of a nibble by a table of 16 bf16. vpermw reads five bits of a word: the table is doubled.
FEWBIT_INLINE __m512i doubled(const std::uint16_t* table) {
  return _mm512_broadcast_i64x4(_mm256_load_si256(reinterpret_cast<const __m256i*>(table)));
}
FEWBIT_INLINE __m512i look_up(__m512i words, int i, __m512i table) {
  return _mm512_permutexvar_epi16(_mm512_srli_epi16(words, static_cast<unsigned>(4 * i)), table);
}

alignas(32) constexpr std::uint16_t e2m1_values[16] = {
    0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0,
    0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
alignas(32) constexpr std::uint16_t int4_values[16] = {
    0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0,
    0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80};

template <class K, bool integers>
struct TableFill {
  static constexpr bool in_weights = false;
  static constexpr std::int64_t cell_bytes = 128;
  BlockPlace at;
  __m512i table;
  __m512i flip;
  explicit TableFill(const Lane16Blocks& block)
      : at(block_place<K>(block, 0)),
        table(doubled(integers ? int4_values : e2m1_values)),
        flip(
            _mm512_set1_epi32(static_cast<int>(integers && block.offset_codes ? 0x88888888U : 0))) {
  }
  static bool ordinary(const Lane16Blocks& /*block*/) { return true; }
  FEWBIT_MEMBER const std::uint8_t* codes(std::int64_t c) const {
    return at.codes + c * cell_bytes;
  }
  FEWBIT_MEMBER void cell(std::int64_t c, std::uint16_t* lines) const {
#pragma GCC unroll 2
    for (int q = 0; q < 2; ++q) {
      __m512i words = _mm512_load_si512(codes(c) + q * 64);
      if constexpr (integers) words = _mm512_xor_si512(words, flip);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) store_line(lines, q * 4 + i, look_up(words, i, table));
    }
  }
};

// e2m1 with powers of two. Values stand in the table with exponents raised by 126, their largest
// possible, and the scale lowers them: zero, of either sign, stays zero by saturation.
alignas(32) constexpr std::uint16_t e2m1_raised[16] = {
    0x0000, 0x7e00, 0x7e80, 0x7ec0, 0x7f00, 0x7f40, 0x7f80, 0x7fc0,
    0x0000, 0xfe00, 0xfe80, 0xfec0, 0xff00, 0xff40, 0xff80, 0xffc0};

template <class K>
struct E8m0Fill {
  static constexpr bool in_weights = true;
  static constexpr std::int64_t cell_bytes = 128;
  static constexpr int lowest = 27;  // 2^-100 to 2^100
  static constexpr int highest = 227;
  BlockPlace at;
  std::int64_t group_cells;
  __m512i table;
  explicit E8m0Fill(const Lane16Blocks& block)
      : at(block_place<K>(block, 0)), group_cells(block.group / 16), table(doubled(e2m1_raised)) {}
  static bool ordinary(const Lane16Blocks& block) {
    const std::uint8_t* scales = block.scales;
    __m128i below = _mm_setzero_si128();
    for (std::int64_t g = 0; g < block.groups(); ++g) {
      const __m128i from = _mm_sub_epi8(Avx512::load_bytes(scales + g * 16),
                                        _mm_set1_epi8(static_cast<char>(lowest)));
      below = _mm_max_epu8(below, from);
    }
    return _mm_cmpgt_epu8_mask(below, _mm_set1_epi8(static_cast<char>(highest - lowest))) == 0;
  }
  FEWBIT_MEMBER const std::uint8_t* codes(std::int64_t c) const {
    return at.codes + c * cell_bytes;
  }
  // How much is taken from the exponents of the rows.
  FEWBIT_MEMBER __m512i lowering(std::int64_t g) const {
    const __m512i bytes = _mm512_broadcast_i32x4(Avx512::load_bytes(at.scales + g * 16));
    const __m512i spread = _mm512_setr_epi32(-0x7fff8000, -0x7ffe7fff, -0x7ffd7ffe, -0x7ffc7ffd,
                                             -0x7ffb7ffc, -0x7ffa7ffb, -0x7ff97ffa, -0x7ff87ff9,
                                             -0x7ff77ff8, -0x7ff67ff7, -0x7ff57ff6, -0x7ff47ff5,
                                             -0x7ff37ff4, -0x7ff27ff3, -0x7ff17ff2, -0x7ff07ff1);
    const __m512i exponents = _mm512_shuffle_epi8(bytes, spread);
    return _mm512_slli_epi16(_mm512_sub_epi16(_mm512_set1_epi16(253), exponents), 7);
  }
  FEWBIT_MEMBER void cell(std::int64_t c, std::uint16_t* lines) const {
    const __m512i lower = lowering(c / group_cells);
#pragma GCC unroll 2
    for (int q = 0; q < 2; ++q) {
      const __m512i words = _mm512_load_si512(codes(c) + q * 64);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
        store_line(lines, q * 4 + i, _mm512_subs_epu16(look_up(words, i, table), lower));
    }
  }
};

// e2m1 with scales e4m3. A value is 2^j or 1.5 * 2^j, so the bits of its product with s are those
// of s or of 1.5 s, raised by j: the table holds j + 140 as the exponent and seven ones where there
// is a 1.5, which let the difference of the two through; the scale is taken from it as above.
alignas(32) constexpr std::uint16_t e2m1_steps[16] = {
    0x0000, 0x4580, 0x4600, 0x467f, 0x4680, 0x46ff, 0x4700, 0x477f,
    0x0000, 0xc580, 0xc600, 0xc67f, 0xc680, 0xc6ff, 0xc700, 0xc77f};
constexpr int e4m3_raise = 140 << 7;

template <class K>
struct E4m3Fill {
  static constexpr bool in_weights = true;
  static constexpr std::int64_t cell_bytes = 128;
  BlockPlace at;
  std::int64_t group_cells;
  __m512i table;
  explicit E4m3Fill(const Lane16Blocks& block)
      : at(block_place<K>(block, 0)),
        group_cells(K::fixed_cells != 0 ? K::fixed_cells : block.group / 16),
        table(doubled(e2m1_steps)) {}
  static bool ordinary(const Lane16Blocks& block) {
    __m128i largest = _mm_setzero_si128();
    for (std::int64_t g = 0; g < block.groups(); ++g)
      largest = _mm_max_epu8(largest, Avx512::load_bytes(block.scales + g * 16));
    return _mm_cmpgt_epu8_mask(largest, _mm_set1_epi8(0x7e)) == 0;
  }
  FEWBIT_MEMBER const std::uint8_t* codes(std::int64_t c) const {
    return at.codes + c * cell_bytes;
  }
  FEWBIT_MEMBER void cell(std::int64_t c, std::uint16_t* lines) const {
    // s and 1.5 s in f32; their upper halves are exact.
    const __m512i s = _mm512_castps_si512(Avx512::e4m3(at.scales + c / group_cells * 16));
    const __m512i more =
        _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(s), _mm512_set1_ps(1.5F)));
    const __m512i bits = _mm512_or_si512(s, _mm512_srli_epi32(s, 16));
    __m512i lower = _mm512_sub_epi16(_mm512_set1_epi16(e4m3_raise), bits);
    lower = _mm512_mask_mov_epi32(lower, _mm512_testn_epi32_mask(s, s), _mm512_set1_epi32(-1));
    const __m512i step = _mm512_sub_epi32(more, s);
    const __m512i let_through = _mm512_ternarylogic_epi32(
        step, _mm512_srli_epi32(step, 16), _mm512_set1_epi16(static_cast<short>(0xff80)), 0xfe);
#pragma GCC unroll 2
    for (int q = 0; q < 2; ++q) {
      const __m512i words = _mm512_load_si512(codes(c) + q * 64);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m512i value = _mm512_and_si512(look_up(words, i, table), let_through);
        store_line(lines, q * 4 + i, _mm512_subs_epu16(value, lower));
      }
    }
  }
};

#undef FEWBIT_MEMBER
#undef FEWBIT_INLINE
