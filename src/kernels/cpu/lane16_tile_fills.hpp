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

// A byte of each of 16 rows, in both words of its lane.
FEWBIT_INLINE __m512i spread_bytes(const std::uint8_t* rows) {
  const __m512i bytes = _mm512_broadcast_i32x4(Avx512::load_bytes(rows));
  const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i twice = _mm512_or_si512(row, _mm512_slli_epi32(row, 16));
  return _mm512_shuffle_epi8(bytes,
                             _mm512_or_si512(twice, _mm512_set1_epi16(static_cast<short>(0x8000))));
}

// Groups of cells; divisions by powers of two, which nearly all are, are shifts.
struct CellGroups {
  std::int64_t cells;
  int shift;
  explicit CellGroups(std::int64_t group_cells)
      : cells(group_cells),
        shift((cells & (cells - 1)) == 0 ? __builtin_ctzll(static_cast<unsigned long long>(cells))
                                         : -1) {}
  FEWBIT_MEMBER std::int64_t of(std::int64_t cell) const {
    return shift >= 0 ? cell >> shift : cell / cells;
  }
};

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
  CellGroups groups;
  Lane16Blocks weight;
  explicit CellFill(const Lane16Blocks& block)
      : at(block_place<K>(block, 0)), groups(cells_of_group<K>(block)), weight(block) {}
  static bool ordinary(const Lane16Blocks& /*block*/) { return true; }
  FEWBIT_MEMBER const std::uint8_t* codes(std::int64_t c) const {
    return at.codes + c * cell_bytes;
  }
  FEWBIT_MEMBER void cell(std::int64_t c, std::uint16_t* lines) const {
    const auto zero = group_zero<Avx512, K>(weight, at, groups.of(c));
    typename K::Cell cell;
    K::Cell::load(cell, at.codes, c, weight.offset_codes);
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
  CellGroups groups;
  __m512i table;
  explicit E8m0Fill(const Lane16Blocks& block)
      : at(block_place<K>(block, 0)), groups(block.group / 16), table(doubled(e2m1_raised)) {}
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
    const __m512i exponents = spread_bytes(at.scales + g * 16);
    return _mm512_slli_epi16(_mm512_sub_epi16(_mm512_set1_epi16(253), exponents), 7);
  }
  FEWBIT_MEMBER void cell(std::int64_t c, std::uint16_t* lines) const {
    const __m512i lower = lowering(groups.of(c));
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
// By code of the scale: the bits of s (plus raise + 1 of zero, which lowers all to zero) of codes
// below 8, the subnormals; what is let through, of these and of the others by their last 3 bits.
alignas(32) constexpr std::uint16_t e4m3_subnormal_bits[16] = {
    e4m3_raise + 1, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60,
    e4m3_raise + 1, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};
alignas(32) constexpr std::uint16_t e4m3_subnormal_steps[16] = {
    0xff80, 0xffc0, 0xffc0, 0xffd0, 0xffc0, 0xffd0, 0xffd0, 0xffc8,
    0xff80, 0xffc0, 0xffc0, 0xffd0, 0xffc0, 0xffd0, 0xffd0, 0xffc8};
alignas(32) constexpr std::uint16_t e4m3_steps[16] = {
    0xffc0, 0xffc8, 0xffd0, 0xffd4, 0xffd0, 0xffcc, 0xffc8, 0xffc4,
    0xffc0, 0xffc8, 0xffd0, 0xffd4, 0xffd0, 0xffcc, 0xffc8, 0xffc4};

template <class K>
struct E4m3Fill {
  static constexpr bool in_weights = true;
  static constexpr std::int64_t cell_bytes = 128;
  BlockPlace at;
  CellGroups groups;
  __m512i table;
  explicit E4m3Fill(const Lane16Blocks& block)
      : at(block_place<K>(block, 0)),
        groups(cells_of_group<K>(block)),
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
  struct Rows {
    __m512i lower, let_through;
  };
  FEWBIT_MEMBER void cell_by(const Rows& rows, std::int64_t c, std::uint16_t* lines) const {
#pragma GCC unroll 2
    for (int q = 0; q < 2; ++q) {
      const __m512i words = _mm512_load_si512(codes(c) + q * 64);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m512i value = _mm512_and_si512(look_up(words, i, table), rows.let_through);
        store_line(lines, q * 4 + i, _mm512_subs_epu16(value, rows.lower));
      }
    }
  }
  FEWBIT_MEMBER Rows rows_of(__m512i codes) const {
    const __mmask32 subnormal = _mm512_cmplt_epu16_mask(codes, _mm512_set1_epi16(8));
    __m512i bits = _mm512_add_epi16(_mm512_slli_epi16(codes, 4), _mm512_set1_epi16(120 << 7));
    bits = _mm512_mask_permutexvar_epi16(bits, subnormal, codes, doubled(e4m3_subnormal_bits));
    __m512i steps = _mm512_permutexvar_epi16(codes, doubled(e4m3_steps));
    steps = _mm512_mask_permutexvar_epi16(steps, subnormal, codes, doubled(e4m3_subnormal_steps));
    return {_mm512_sub_epi16(_mm512_set1_epi16(e4m3_raise), bits), steps};
  }
  FEWBIT_MEMBER void cell(std::int64_t c, std::uint16_t* lines) const {
    cell_by(rows_of(spread_bytes(at.scales + groups.of(c) * 16)), c, lines);
  }
  // Two cells of a group each: their scales at once, cell by cell in the halves of a register.
  FEWBIT_MEMBER void tile(std::int64_t c, std::uint16_t* lines) const {
    if constexpr (K::fixed_cells != 1) {
      cell(c, lines);
      cell(c + 1, lines + 256);
      return;
    }
    const Rows both = rows_of(_mm512_cvtepu8_epi16(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at.scales + c * 16))));
    const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i first = _mm512_or_si512(row, _mm512_slli_epi32(row, 16));
    const __m512i second = _mm512_or_si512(first, _mm512_set1_epi16(16));
    cell_by({_mm512_permutexvar_epi16(first, both.lower),
             _mm512_permutexvar_epi16(first, both.let_through)},
            c, lines);
    cell_by({_mm512_permutexvar_epi16(second, both.lower),
             _mm512_permutexvar_epi16(second, both.let_through)},
            c + 1, lines + 256);
  }
};

// Magnitudes of e4m3 codes below 8, its subnormals.
alignas(32) constexpr std::uint16_t e4m3_small[16] = {
    0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60,
    0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60};

// e4m3, with powers of two where `powers`: exponents are raised by 100 and lowered by what the
// scale is below 2^100, which leaves zero as it is. A cell with NaN goes another way.
template <class K, bool powers>
struct Fp8Fill {
  static constexpr bool in_weights = powers;
  static constexpr std::int64_t cell_bytes = 256;
  static constexpr int raise = powers ? 100 << 7 : 0;
  BlockPlace at;
  CellGroups groups;
  __m512i small;
  explicit Fp8Fill(const Lane16Blocks& block)
      : at(block_place<K>(block, 0)), groups(block.group / 16), small(doubled(e4m3_small)) {
    const __m512i more = _mm512_add_epi16(small, _mm512_set1_epi16(raise));
    small = _mm512_mask_mov_epi16(small, _mm512_test_epi16_mask(small, small), more);
  }
  static bool ordinary(const Lane16Blocks& block) {
    return !powers || E8m0Fill<K>::ordinary(block);
  }
  FEWBIT_MEMBER const std::uint8_t* codes(std::int64_t c) const {
    return at.codes + c * cell_bytes;
  }

  FEWBIT_MEMBER bool has_nan(std::int64_t c) const {
    __mmask64 nan = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 256; i += 64) {
      const __m512i rest = _mm512_or_si512(_mm512_load_si512(codes(c) + i),
                                           _mm512_set1_epi8(static_cast<char>(0x80)));
      nan |= _mm512_cmpeq_epi8_mask(rest, _mm512_set1_epi8(static_cast<char>(0xff)));
    }
    return nan != 0;
  }
  __attribute__((noinline)) void any_cell(std::int64_t c, std::uint16_t* lines) const {
    const __m512 scale = powers ? Avx512::e8m0(at.scales + groups.of(c) * 16) : Avx512::same(1.0F);
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) {
      const std::uint8_t* low = codes(c) + (line / 4 * 8 + line % 4) * 16;
      const __m512i first = _mm512_castps_si512(_mm512_mul_ps(Avx512::e4m3(low), scale));
      const __m512i second = _mm512_castps_si512(_mm512_mul_ps(Avx512::e4m3(low + 64), scale));
      store_line(lines, line,
                 _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(first, 16), second));
    }
  }
  // Codes of 32 weights in the upper halves of words.
  FEWBIT_MEMBER __m512i values(__m512i words, __m512i lower) const {
    const __m512i mask = _mm512_set1_epi16(0x07f0);
    __m512i size = _mm512_and_si512(_mm512_srli_epi16(words, 4), mask);
    size = _mm512_add_epi16(size, _mm512_set1_epi16((120 << 7) + raise));
    const __mmask32 subnormal = _mm512_testn_epi16_mask(words, _mm512_set1_epi16(0x7800));
    size = _mm512_mask_permutexvar_epi16(size, subnormal, _mm512_srli_epi16(words, 8), small);
    if constexpr (powers) size = _mm512_subs_epu16(size, lower);
    const __m512i sign = _mm512_set1_epi16(static_cast<short>(0x8000));
    return _mm512_ternarylogic_epi32(words, sign, size, 0xea);  // words & sign | size
  }
  FEWBIT_MEMBER void cell(std::int64_t c, std::uint16_t* lines) const {
    if (__builtin_expect(has_nan(c), 0)) return any_cell(c, lines);
    __m512i lower = _mm512_setzero_si512();
    if constexpr (powers) {
      const __m512i exponents = spread_bytes(at.scales + groups.of(c) * 16);
      lower = _mm512_slli_epi16(_mm512_sub_epi16(_mm512_set1_epi16(227), exponents), 7);
    }
    // Bytes r and 16 + r in the upper halves of the words of lane r.
    const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i index =
        _mm512_or_si512(_mm512_slli_epi32(row, 8),
                        _mm512_slli_epi32(_mm512_add_epi32(row, _mm512_set1_epi32(16)), 24));
#pragma GCC unroll 8
    for (int line = 0; line < 8; ++line) {
      const std::uint8_t* low = codes(c) + (line / 4 * 8 + line % 4) * 16;
      const __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(Avx512::load_bytes(low)),
                                                   Avx512::load_bytes(low + 64), 1);
      const __m512i words =
          _mm512_maskz_permutexvar_epi8(0xaaaaaaaaaaaaaaaaU, index, _mm512_castsi256_si512(both));
      store_line(lines, line, values(words, lower));
    }
  }
};

// int4 less a zero point, -16 to 15, by the table of 32.
alignas(64) constexpr std::uint16_t int5_values[32] = {
    0x0000, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100, 0x4110, 0x4120,
    0x4130, 0x4140, 0x4150, 0x4160, 0x4170, 0xc180, 0xc170, 0xc160, 0xc150, 0xc140, 0xc130,
    0xc120, 0xc110, 0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80};

template <class K>
struct ZeroInt4Fill {
  static constexpr bool in_weights = false;
  static constexpr std::int64_t cell_bytes = 128;
  BlockPlace at;
  CellGroups groups;
  __m512i table;
  __m512i flip;
  __m512i shift;  // of zero points, to those of codes 0 to 15
  explicit ZeroInt4Fill(const Lane16Blocks& block)
      : at(block_place<K>(block, 0)),
        groups(block.group / 16),
        table(_mm512_load_si512(int5_values)),
        flip(_mm512_set1_epi32(static_cast<int>(block.offset_codes ? 0 : 0x88888888U))),
        shift(_mm512_set1_epi16(block.offset_codes ? 0 : 8)) {}
  // Zero points 0 to 16.
  static bool ordinary(const Lane16Blocks& block) {
    __m128i largest = _mm_setzero_si128();
    const __m128i offset = _mm_set1_epi8(block.offset_codes ? 0 : 8);
    for (std::int64_t g = 0; g < block.groups(); ++g) {
      const __m128i zeros = _mm_add_epi8(Avx512::load_bytes(block.zeros + g * 16), offset);
      largest = _mm_max_epu8(largest, zeros);
    }
    return _mm_cmpgt_epu8_mask(largest, _mm_set1_epi8(16)) == 0;
  }
  FEWBIT_MEMBER const std::uint8_t* codes(std::int64_t c) const {
    return at.codes + c * cell_bytes;
  }
  FEWBIT_MEMBER void cell(std::int64_t c, std::uint16_t* lines) const {
    const __m512i zeros =
        _mm512_and_si512(_mm512_add_epi16(spread_bytes(at.zeros + groups.of(c) * 16), shift),
                         _mm512_set1_epi16(0xff));
#pragma GCC unroll 2
    for (int q = 0; q < 2; ++q) {
      const __m512i words = _mm512_xor_si512(_mm512_load_si512(codes(c) + q * 64), flip);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m512i code = _mm512_and_si512(
            _mm512_srli_epi16(words, static_cast<unsigned>(4 * i)), _mm512_set1_epi16(15));
        store_line(lines, q * 4 + i,
                   _mm512_permutexvar_epi16(_mm512_sub_epi16(code, zeros), table));
      }
    }
  }
};

#undef FEWBIT_MEMBER
#undef FEWBIT_INLINE
