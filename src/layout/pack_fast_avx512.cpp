// SPDX-License-Identifier: Apache-2.0
// Four tiles along k at a time: with eight (whole lines of the rows) a step touches twice the
// pages, which costs a fifth of the speed.
#include "layout/pack_fast.hpp"

#if defined(__x86_64__)

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512vl")

namespace fewbit {
namespace {

constexpr int step_tiles = 4;

// 8 bytes a tile of one row; zero beyond count.
inline __m512i load_row(const std::uint8_t* row, int count) {
  // 64 rows are more streams than the hardware follows.
  _mm_prefetch(reinterpret_cast<const char*>(row) + 64, _MM_HINT_T0);
  const auto lanes = static_cast<__mmask8>((1U << count) - 1U);
  return _mm512_castsi256_si512(count == step_tiles
                                    ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row))
                                    : _mm256_maskz_loadu_epi64(lanes, row));
}

// Lane t: the words r = 0..3 of tile t, from its 8 bytes of the rows h = 0 and h = 1.
inline __m512i pack_words(__m512i h0, __m512i h1) {
  constexpr int a_or_b_and_c = 0xf8;
  const __m512i pairs = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
  const __m512i stay = _mm512_set1_epi64(static_cast<long long>(0xf0f0f0f00f0f0f0fULL));
  const __m512i up = _mm512_set1_epi64(0x0f0f0f0f00000000LL);
  const __m512i down = _mm512_set1_epi64(0x00000000f0f0f0f0LL);
  const __m512i x = _mm512_permutex2var_epi64(h0, pairs, h1);
  __m512i y = _mm512_and_si512(x, stay);
  y = _mm512_ternarylogic_epi64(y, _mm512_slli_epi64(x, 28), up, a_or_b_and_c);
  y = _mm512_ternarylogic_epi64(y, _mm512_srli_epi64(x, 28), down, a_or_b_and_c);
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15));
  return _mm512_shuffle_epi8(y, bytes);
}

// x[j], lane t: words r of tile t -> lines[t]: words [r][j].
inline void transpose_words(const __m512i x[4], __m512i lines[4]) {
  const __m512i a = _mm512_unpacklo_epi32(x[0], x[1]);  // r = 0, 1 of j = 0, 1
  const __m512i b = _mm512_unpackhi_epi32(x[0], x[1]);  // r = 2, 3
  const __m512i c = _mm512_unpacklo_epi32(x[2], x[3]);
  const __m512i d = _mm512_unpackhi_epi32(x[2], x[3]);
  const __m512i r0 = _mm512_unpacklo_epi64(a, c);
  const __m512i r1 = _mm512_unpackhi_epi64(a, c);
  const __m512i r2 = _mm512_unpacklo_epi64(b, d);
  const __m512i r3 = _mm512_unpackhi_epi64(b, d);
  const __m512i low01 = _mm512_shuffle_i64x2(r0, r1, 0x44);  // tiles 0, 1
  const __m512i high01 = _mm512_shuffle_i64x2(r0, r1, 0xee);
  const __m512i low23 = _mm512_shuffle_i64x2(r2, r3, 0x44);
  const __m512i high23 = _mm512_shuffle_i64x2(r2, r3, 0xee);
  lines[0] = _mm512_shuffle_i64x2(low01, low23, 0x88);
  lines[1] = _mm512_shuffle_i64x2(low01, low23, 0xdd);
  lines[2] = _mm512_shuffle_i64x2(high01, high23, 0x88);
  lines[3] = _mm512_shuffle_i64x2(high01, high23, 0xdd);
}

// Whole lines go past the caches, where they would push out the source: the tiles of an expert are
// more than a cache holds, and nobody reads them soon.
inline void store_line(std::uint8_t* out, __m512i words) {
  if (reinterpret_cast<std::uintptr_t>(out) % 64 == 0) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(out), words);
  } else {
    _mm512_storeu_si512(out, words);
  }
}

}  // namespace

void pack_b12x_panel_avx512(const B12xPanel& panel) {
  const std::int64_t tiles = panel.k / 16;
  for (std::int64_t first = 0; first < tiles; first += step_tiles) {
    const auto count = static_cast<int>(tiles - first < step_tiles ? tiles - first : step_tiles);
    std::uint8_t* const out = panel.tiles + first * panel.stride_bytes;
    for (int c = 0; c < 8; ++c) {
      __m512i words[4];
      for (int j = 0; j < 4; ++j) {
        words[j] = pack_words(load_row(panel.rows[16 * j + c] + 8 * first, count),
                              load_row(panel.rows[16 * j + 8 + c] + 8 * first, count));
      }
      __m512i lines[4];
      transpose_words(words, lines);
      for (int t = 0; t < count; ++t) {
        store_line(out + t * panel.stride_bytes + 64 * c, lines[t]);
      }
    }
  }
  _mm_sfence();  // streamed lines are in memory before anyone is told
}

}  // namespace fewbit

FEWBIT_ISA_END

#endif
