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
  // As many dot products as run while one is waited for, eleven, need registers for their codes;
  // eight longer chains of one token were read no faster than four.
  static constexpr int direct_chains(int tokens, int cells = chain_cells) {
    if (tokens == 1 && cells == 2) return 8;
    return tokens <= 4 ? 4 : tokens <= 8 ? 2 : 1;
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
    cell.half[0] = _mm512_load_si512(codes);
    cell.half[1] = _mm512_load_si512(codes + 64);
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

template <class K>
void run_dots_of(const Lane16Tiles& run, const Lane16Blocks& from, float* y, std::int64_t pair) {
  using Table = DotsByTokens<K, std::make_integer_sequence<int, tile_tokens>>;
  const std::int64_t row = tile_row(from.k);
  y += pair * run.y_pair;
  for (std::int64_t i = 0; i < tile_count(run.tokens); ++i) {
    const std::int64_t t = tile_begin(run.tokens, i);
    const auto* x = reinterpret_cast<const std::uint32_t*>(run.x + t * row);
    Table::of[tile_begin(run.tokens, i + 1) - t - 1](from, pair * run.step, x, y + t * run.y_token,
                                                     run.y_token);
  }
}

// In the order of memory: blocks of one matrix by turns, of two matrices one after the other.
template <class K>
void run_dots(const Lane16Tiles& run) {
  const bool both = run.right.codes != nullptr;
  const bool by_turns = both && run.step != 1;
  for (std::int64_t p = 0; p < run.pairs; ++p) {
    run_dots_of<K>(run, run.left, run.left_y, p);
    if (by_turns) run_dots_of<K>(run, run.right, run.right_y, p);
  }
  if (!both || by_turns) return;
  for (std::int64_t p = 0; p < run.pairs; ++p) run_dots_of<K>(run, run.right, run.right_y, p);
}

static Lane16TilesFn* dots_of(Lane16Codes codes) {
  switch (codes) {
    case Lane16Codes::nvfp4:
      return run_dots<Kind<NibblePairs<false>, false, 1>>;
    case Lane16Codes::f4_e2m1:
      return run_dots<Kind<NibblePairs<false>, false>>;
    case Lane16Codes::int4:
      return run_dots<Kind<NibblePairs<true>, false>>;
    case Lane16Codes::f8_e4m3:
      return run_dots<Kind<E4m3Pairs, false>>;
    default:
      return nullptr;
  }
}

#undef FEWBIT_INLINE
