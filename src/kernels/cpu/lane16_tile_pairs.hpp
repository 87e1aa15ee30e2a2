// SPDX-License-Identifier: Apache-2.0
// Kinds of lane16 codes as pairs of bf16, and the loops over them. Included inside a target region
// with AVX-512 VBMI and BF16, after lane16_tile_fills.hpp, so it includes nothing itself.
//
// Step i of a cell has the words of line i of half a tile (lane16_tile_fills.hpp): k = 8 q + j and
// 8 q + j + 4 of the 16 rows, i = 4 q + j.
#pragma once

#define FEWBIT_INLINE static inline __attribute__((always_inline))

struct Avx512Dots : Avx512 {
  using Pair = std::uint32_t;
  static constexpr int prefetch_bytes = 8192;
  static constexpr int direct_chains(int tokens) {
    return tokens == 1 ? 8 : tokens <= 4 ? 4 : tokens <= 8 ? 2 : 1;
  }
  FEWBIT_INLINE Floats dot(Floats sum, Words w, Pair x) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w),
                            reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(x))));
  }
};

template <bool integers>
struct NibblePairs : CellBase<Avx512, 128> {
  __m512i half[2];
  FEWBIT_INLINE void load(NibblePairs& cell, const std::uint8_t* block, std::int64_t index,
                          bool offset) {
    const std::uint8_t* codes = block + index * 128;
    cell.half[0] = Avx512::load_words(codes);
    cell.half[1] = Avx512::load_words(codes + 64);
    if constexpr (integers) {
      const __m512i flip = Avx512::same_words(offset ? 0x88888888U : 0U);
      cell.half[0] = _mm512_xor_si512(cell.half[0], flip);
      cell.half[1] = _mm512_xor_si512(cell.half[1], flip);
    }
  }
  FEWBIT_INLINE __m512i value(const NibblePairs& cell, int i) {
    return look_up(cell.half[i / 4], i % 4, doubled(integers ? int4_values : e2m1_values));
  }
};

// Codes less their zero points, 0 to 16: -16 to 15. Even and odd nibbles become bytes, from which
// zero points are taken in one go; the table looks at 5 bits of a word.
struct ZeroNibblePairs : CellBase<Avx512, 128> {
  using Zero = __m512i;  // of a row in each byte of its lane
  __m512i even[2], odd[2];
  FEWBIT_INLINE void load(ZeroNibblePairs& cell, const std::uint8_t* block, std::int64_t index,
                          bool offset) {
    const __m512i flip = Avx512::same_words(offset ? 0U : 0x88888888U);
    const __m512i mask = Avx512::same_words(0x0f0f0f0fU);
#pragma GCC unroll 2
    for (int q = 0; q < 2; ++q) {
      const __m512i words = Avx512::load_words(block + index * 128 + q * 64);
      cell.even[q] = _mm512_ternarylogic_epi32(words, flip, mask, 0x28);  // (words ^ flip) & mask
      cell.odd[q] = _mm512_ternarylogic_epi32(_mm512_srli_epi16(words, 4), flip, mask, 0x28);
    }
  }
  FEWBIT_INLINE Zero zero(const BlockPlace& at, std::int64_t g, bool offset) {
    const __m512i rows = _mm512_broadcast_i32x4(Avx512::load_bytes(at.zeros + g * 16));
    const __m512i row = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i four = _mm512_mullo_epi32(row, Avx512::same_words(0x01010101U));
    return _mm512_add_epi8(_mm512_shuffle_epi8(rows, four), _mm512_set1_epi8(offset ? 0 : 8));
  }
  FEWBIT_INLINE __m512i value_minus(const ZeroNibblePairs& cell, int i, const Zero& zero) {
    const __m512i codes = i % 2 == 0 ? cell.even[i / 4] : cell.odd[i / 4];
    const __m512i less = _mm512_sub_epi8(codes, zero);
    return _mm512_permutexvar_epi16(i % 4 < 2 ? less : _mm512_srli_epi16(less, 8),
                                    _mm512_load_si512(int5_values));
  }
};

// Of a kind whose f32 are exact in bf16, as lane16.hpp has them.
template <class Cell>
struct FloatPairs : Cell {
  FEWBIT_INLINE __m512i joined(__m512 first, __m512 second) {
    return _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(_mm512_castps_si512(first), 16),
                                   _mm512_castps_si512(second));
  }
  FEWBIT_INLINE __m512i value(const FloatPairs& cell, int i) {
    const int k = i / 4 * 8 + i % 4;
    return joined(Cell::value(cell, k), Cell::value(cell, k + 4));
  }
  FEWBIT_INLINE __m512i value_minus(const FloatPairs& cell, int i,
                                    const typename Cell::Zero& zero) {
    const int k = i / 4 * 8 + i % 4;
    return joined(Cell::value_minus(cell, k, zero), Cell::value_minus(cell, k + 4, zero));
  }
};

// The 16 bits of 8 k in both words of a lane, in the upper one from k = 4 on.
struct TernaryPairs : CellBase<Avx512, 64> {
  __m512i half[2];
  FEWBIT_INLINE void load(TernaryPairs& cell, const std::uint8_t* block, std::int64_t index,
                          bool /*offset*/) {
    const __m512i words = _mm512_load_si512(block + index * 64);
    const __m512i low =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13));
    const __m512i high = _mm512_add_epi8(low, _mm512_set1_epi8(2));
    const __m512i by = _mm512_set1_epi32(8 << 16);
    cell.half[0] = _mm512_srlv_epi16(_mm512_shuffle_epi8(words, low), by);
    cell.half[1] = _mm512_srlv_epi16(_mm512_shuffle_epi8(words, high), by);
  }
  FEWBIT_INLINE __m512i value(const TernaryPairs& cell, int i) {
    const __m512i table = _mm512_set1_epi64(0x40003f800000bf80);  // -1, 0, 1, 2, over and over
    return _mm512_permutexvar_epi16(
        _mm512_srli_epi16(cell.half[i / 4], static_cast<unsigned>(i % 4 * 2)), table);
  }
};

struct Q6kValues {
  std::uint16_t bf16[64];
};
constexpr Q6kValues make_q6k_values() {
  Q6kValues values{};
  for (int code = 0; code < 64; ++code)
    values.bf16[code] = static_cast<std::uint16_t>(
        std::bit_cast<std::uint32_t>(static_cast<float>(code - 32)) >> 16);
  return values;
}
alignas(64) constexpr Q6kValues q6k_values = make_q6k_values();

struct Q6kPairs : Q6kCell<Avx512> {
  FEWBIT_INLINE __m512i value(const Q6kPairs& cell, int i) {
    const __m512i first = cell.words[i / 4 * 2];
    const __m512i second = cell.words[i / 4 * 2 + 1];
    const __m512i codes =
        i % 4 < 2 ? _mm512_mask_blend_epi16(0xaaaaaaaaU, first, _mm512_slli_epi32(second, 16))
                  : _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(first, 16), second);
    return _mm512_permutex2var_epi16(_mm512_load_si512(q6k_values.bf16),
                                     i % 2 == 0 ? codes : _mm512_srli_epi16(codes, 8),
                                     _mm512_load_si512(q6k_values.bf16 + 32));
  }
};

// The upper and lower bytes of the bf16 of an e4m3 code without its sign.
struct E4m3Bytes {
  std::uint8_t high[128], low[128];
};
constexpr E4m3Bytes make_e4m3_bytes() {
  E4m3Bytes bytes{};
  for (int code = 0; code < 128; ++code) {
    const int normal = (code << 4) + (120 << 7);
    const int bits = code == 127 ? 0x7fc0 : code < 8 ? e4m3_small[code] : normal;
    bytes.high[code] = static_cast<std::uint8_t>(bits >> 8);
    bytes.low[code] = static_cast<std::uint8_t>(bits & 255);
  }
  return bytes;
}
alignas(64) constexpr E4m3Bytes e4m3_bytes = make_e4m3_bytes();
// Where the codes of steps 2 p and 2 p + 1 of 8 k stand among their 128, so that each 8 bytes of a
// lane of 16 are 4 rows of a step.
struct E4m3Order {
  std::uint8_t from[2][64];
};
constexpr E4m3Order make_e4m3_order() {
  E4m3Order order{};
  for (int p = 0; p < 2; ++p)
    for (int i = 0; i < 64; ++i) {
      const int row = i / 16 * 4 + i % 8 / 2;
      const int k = 2 * p + i % 16 / 8 + i % 2 * 4;
      order.from[p][i] = static_cast<std::uint8_t>(k * 16 + row);
    }
  return order;
}
alignas(64) constexpr E4m3Order e4m3_order = make_e4m3_order();

struct E4m3Pairs : ByteCell<Avx512> {
  FEWBIT_INLINE void load(E4m3Pairs& cell, const std::uint8_t* block, std::int64_t index,
                          bool /*offset*/) {
    cell.codes = block + index * 256;
  }
  // Steps come in twos, whose common work the compiler does once.
  FEWBIT_INLINE __m512i value(const E4m3Pairs& cell, int i) {
    const std::uint8_t* codes = cell.codes + i / 4 * 128;
    const __m512i both = _mm512_permutex2var_epi8(_mm512_load_si512(codes),
                                                  _mm512_load_si512(e4m3_order.from[i % 4 / 2]),
                                                  _mm512_load_si512(codes + 64));
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i size = _mm512_permutex2var_epi8(_mm512_load_si512(e4m3_bytes.high), both,
                                                  _mm512_load_si512(e4m3_bytes.high + 64));
    const __m512i high = _mm512_ternarylogic_epi32(both, sign, size, 0xea);
    const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(e4m3_bytes.low), both,
                                                 _mm512_load_si512(e4m3_bytes.low + 64));
    return i % 2 == 0 ? _mm512_unpacklo_epi8(low, high) : _mm512_unpackhi_epi8(low, high);
  }
};

using RunDots = void (*)(const Lane16Blocks&, std::int64_t, const std::uint32_t*, float*,
                         std::int64_t);
template <class K, class Counts>
struct DotsByTokens;
template <class K, int... less_one>
struct DotsByTokens<K, std::integer_sequence<int, less_one...>> {
  static constexpr RunDots of[] = {run_direct<Avx512Dots, K, less_one + 1>...};
};

// Whether a block's zero points are those that K takes. Has those of the next block fetched.
template <class K>
FEWBIT_INLINE bool takes_zeros(const Lane16Blocks& from, std::int64_t block) {
  Lane16Blocks one = from;
  const std::int64_t bytes = from.groups() * 16;
  one.zeros += block * bytes;
  for (std::int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(one.zeros + bytes + i);
  return ZeroInt4Fill<K>::ordinary(one);
}

// Blocks by K, those with zero points that it doesn't take by Any.
template <class K, class Any>
void run_dots_of(const Lane16Tiles& run, const Lane16Blocks& from, float* y, std::int64_t pair) {
  using Counts = std::make_integer_sequence<int, tile_tokens>;
  const std::int64_t row = tile_row(from.k);
  const RunDots* by_tokens = DotsByTokens<K, Counts>::of;
  if constexpr (!std::is_same_v<K, Any>)
    if (!takes_zeros<K>(from, pair * run.step)) by_tokens = DotsByTokens<Any, Counts>::of;
  y += pair * run.y_pair;
  for (std::int64_t i = 0; i < tile_count(run.tokens); ++i) {
    const std::int64_t t = tile_begin(run.tokens, i);
    const auto* x = reinterpret_cast<const std::uint32_t*>(run.x + t * row);
    by_tokens[tile_begin(run.tokens, i + 1) - t - 1](from, pair * run.step, x, y + t * run.y_token,
                                                     run.y_token);
  }
}

// What the loops fetch ahead of themselves from then on.
template <class K>
FEWBIT_INLINE void prefetch_start(const Lane16Blocks& from) {
  prefetch_codes(from.codes, Avx512Dots::prefetch_bytes);
  const std::int64_t cells = Avx512Dots::prefetch_bytes / K::Cell::bytes;
  prefetch_groups<K>(block_place<K>(from, 0), 0, cells / cells_of_group<K>(from));
}

// In the order of memory: blocks of one matrix by turns, of two matrices one after the other.
template <class K, class Any = K>
void run_dots(const Lane16Tiles& run) {
  const bool both = run.right.codes != nullptr;
  const bool by_turns = both && run.step != 1;
  const bool in_turn = both && !by_turns;
  prefetch_start<K>(run.left);
  for (std::int64_t p = 0; p < run.pairs; ++p) {
    if (in_turn && p == run.pairs - 1) prefetch_start<K>(run.right);
    run_dots_of<K, Any>(run, run.left, run.left_y, p);
    if (by_turns) run_dots_of<K, Any>(run, run.right, run.right_y, p);
  }
  for (std::int64_t p = 0; in_turn && p < run.pairs; ++p)
    run_dots_of<K, Any>(run, run.right, run.right_y, p);
}

static Lane16TilesFn* dots_of(Lane16Codes codes) {
  switch (codes) {
    case Lane16Codes::nvfp4:
      return run_dots<Kind<NibblePairs<false>, false, 1>>;
    case Lane16Codes::f4_e2m1:
      return run_dots<Kind<NibblePairs<false>, false>>;
    case Lane16Codes::int4:
      return run_dots<Kind<NibblePairs<true>, false>>;
    case Lane16Codes::int4_zeros:
      return run_dots<Kind<ZeroNibblePairs, true>, Kind<FloatPairs<ZeroInt4Cell<Avx512>>, true>>;
    case Lane16Codes::int8:
      return run_dots<Kind<FloatPairs<Int8Cell<Avx512>>, false>>;
    case Lane16Codes::int8_zeros:
      return run_dots<Kind<FloatPairs<ZeroInt8Cell<Avx512>>, true>>;
    case Lane16Codes::ternary:
      return run_dots<Kind<TernaryPairs, false>>;
    case Lane16Codes::q6_k:
      return run_dots<Kind<Q6kPairs, false, 1>>;
    case Lane16Codes::f8_e4m3:
      return run_dots<Kind<E4m3Pairs, false>>;
    default:
      return nullptr;
  }
}

#undef FEWBIT_INLINE
