// SPDX-License-Identifier: Apache-2.0
#include "layout/pack_fast.hpp"

#if defined(__x86_64__)

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512vl")

namespace fewbit {
namespace {

// 128-bit lane j of tiles[t] = 8 bytes of tile t of row 16j + c, then of row 16j + 8 + c.
inline void transpose_tiles(const __m512i rows[8], __m512i tiles[8]) {
  for (int odd = 0; odd < 2; ++odd) {
    __m512i pair[4];  // lane i: tile 2i + odd of the two rows of one j
    for (int j = 0; j < 4; ++j) {
      pair[j] = odd == 0 ? _mm512_unpacklo_epi64(rows[2 * j], rows[2 * j + 1])
                         : _mm512_unpackhi_epi64(rows[2 * j], rows[2 * j + 1]);
    }
    const __m512i low01 = _mm512_shuffle_i64x2(pair[0], pair[1], 0x44);
    const __m512i high01 = _mm512_shuffle_i64x2(pair[0], pair[1], 0xee);
    const __m512i low23 = _mm512_shuffle_i64x2(pair[2], pair[3], 0x44);
    const __m512i high23 = _mm512_shuffle_i64x2(pair[2], pair[3], 0xee);
    tiles[0 + odd] = _mm512_shuffle_i64x2(low01, low23, 0x88);
    tiles[2 + odd] = _mm512_shuffle_i64x2(low01, low23, 0xdd);
    tiles[4 + odd] = _mm512_shuffle_i64x2(high01, high23, 0x88);
    tiles[6 + odd] = _mm512_shuffle_i64x2(high01, high23, 0xdd);
  }
}

// One tile's 8 rows of one c, ordered as above -> words 16c .. 16c+15.
inline __m512i pack_words(__m512i x) {
  constexpr int a_or_b_and_c = 0xf8;
  const __m512i stay = _mm512_set1_epi64(static_cast<long long>(0xf0f0f0f00f0f0f0fULL));
  const __m512i up = _mm512_set1_epi64(0x0f0f0f0f00000000LL);
  const __m512i down = _mm512_set1_epi64(0x00000000f0f0f0f0LL);
  __m512i y = _mm512_and_si512(x, stay);
  y = _mm512_ternarylogic_epi64(y, _mm512_slli_epi64(x, 28), up, a_or_b_and_c);
  y = _mm512_ternarylogic_epi64(y, _mm512_srli_epi64(x, 28), down, a_or_b_and_c);
  // Bytes r, 8+r, 4+r, 12+r of a lane make word r; then words [j][r] become [r][j].
  const __m512i bytes =
      _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15));
  const __m512i words = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  return _mm512_permutexvar_epi32(words, _mm512_shuffle_epi8(y, bytes));
}

}  // namespace

void pack_b12x_panel_avx512(const B12xPanel& panel) {
  const std::int64_t tiles = panel.k / 16;
  for (std::int64_t first = 0; first < tiles; first += 8) {
    const auto count = static_cast<int>(tiles - first < 8 ? tiles - first : 8);
    const auto lanes = static_cast<__mmask8>((1U << count) - 1U);
    std::uint8_t* const out = panel.tiles + first * panel.stride_bytes;
    for (int c = 0; c < 8; ++c) {
      __m512i rows[8];
      for (int i = 0; i < 8; ++i) {
        rows[i] = _mm512_maskz_loadu_epi64(lanes, panel.rows[8 * i + c] + 8 * first);
      }
      __m512i x[8];
      transpose_tiles(rows, x);
      for (int t = 0; t < count; ++t) {
        _mm512_storeu_si512(out + t * panel.stride_bytes + 64 * c, pack_words(x[t]));
      }
    }
  }
}

}  // namespace fewbit

FEWBIT_ISA_END

#endif
