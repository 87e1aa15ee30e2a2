// SPDX-License-Identifier: Apache-2.0
#include "layout/pack_fast.hpp"

#if defined(__x86_64__)

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx2")

namespace fewbit {
namespace {

// Lane: 8 bytes of row h = 0, 8 bytes of row h = 1 of a tile -> its words r = 0..3.
inline __m256i pack_words(__m256i x) {
  const __m256i stay = _mm256_set1_epi64x(static_cast<long long>(0xf0f0f0f00f0f0f0fULL));
  const __m256i up = _mm256_set1_epi64x(0x0f0f0f0f00000000LL);
  const __m256i down = _mm256_set1_epi64x(0x00000000f0f0f0f0LL);
  const __m256i raised = _mm256_and_si256(_mm256_slli_epi64(x, 28), up);
  const __m256i lowered = _mm256_and_si256(_mm256_srli_epi64(x, 28), down);
  const __m256i y = _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(x, stay), raised), lowered);
  const __m256i bytes = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15));
  return _mm256_shuffle_epi8(y, bytes);
}

// Whole lines go past the caches, where they would push out the source: the tiles of an expert are
// more than a cache holds, and nobody reads them soon.
inline void store_line(std::uint8_t* out, __m256i low, __m256i high) {
  auto* const line = reinterpret_cast<__m256i*>(out);
  if (reinterpret_cast<std::uintptr_t>(out) % 64 == 0) {
    _mm256_stream_si256(line, low);
    _mm256_stream_si256(line + 1, high);
  } else {
    _mm256_storeu_si256(line, low);
    _mm256_storeu_si256(line + 1, high);
  }
}

// x[j]: words r of j, of one tile in the low lane and of the tile after the next in the high lane.
// Writes words [r][j] of one or both.
inline void store_tiles(const __m256i x[4], std::uint8_t* low_out, std::uint8_t* high_out) {
  const __m256i a = _mm256_unpacklo_epi32(x[0], x[1]);  // r = 0, 1 of j = 0, 1
  const __m256i b = _mm256_unpackhi_epi32(x[0], x[1]);  // r = 2, 3
  const __m256i c = _mm256_unpacklo_epi32(x[2], x[3]);
  const __m256i d = _mm256_unpackhi_epi32(x[2], x[3]);
  const __m256i r0 = _mm256_unpacklo_epi64(a, c);
  const __m256i r1 = _mm256_unpackhi_epi64(a, c);
  const __m256i r2 = _mm256_unpacklo_epi64(b, d);
  const __m256i r3 = _mm256_unpackhi_epi64(b, d);
  if (low_out != nullptr) {
    store_line(low_out, _mm256_permute2x128_si256(r0, r1, 0x20),
               _mm256_permute2x128_si256(r2, r3, 0x20));
  }
  if (high_out != nullptr) {
    store_line(high_out, _mm256_permute2x128_si256(r0, r1, 0x31),
               _mm256_permute2x128_si256(r2, r3, 0x31));
  }
}

// 64-bit lanes below count are set.
inline __m256i lane_mask(int count) {
  return _mm256_cmpgt_epi64(_mm256_set1_epi64x(count), _mm256_setr_epi64x(0, 1, 2, 3));
}

}  // namespace

void pack_b12x_panel_avx2(const B12xPanel& panel) {
  const std::int64_t tiles = panel.k / 16;
  for (std::int64_t first = 0; first < tiles; first += 4) {
    const auto count = static_cast<int>(tiles - first < 4 ? tiles - first : 4);
    const __m256i lanes = lane_mask(count);
    for (int c = 0; c < 8; ++c) {
      std::uint8_t* line[4];
      for (int t = 0; t < 4; ++t) {
        line[t] = t < count ? panel.tiles + (first + t) * panel.stride_bytes + 64 * c : nullptr;
      }
      __m256i even[4];
      __m256i odd[4];
      for (int j = 0; j < 4; ++j) {
        const std::uint8_t* const h0 = panel.rows[16 * j + c] + 8 * first;
        const std::uint8_t* const h1 = panel.rows[16 * j + 8 + c] + 8 * first;
        // 64 rows are more streams than the hardware follows.
        _mm_prefetch(reinterpret_cast<const char*>(h0) + 64, _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(h1) + 64, _MM_HINT_T0);
        const __m256i x0 = _mm256_maskload_epi64(reinterpret_cast<const long long*>(h0), lanes);
        const __m256i x1 = _mm256_maskload_epi64(reinterpret_cast<const long long*>(h1), lanes);
        even[j] = pack_words(_mm256_unpacklo_epi64(x0, x1));
        odd[j] = pack_words(_mm256_unpackhi_epi64(x0, x1));
      }
      store_tiles(even, line[0], line[2]);
      store_tiles(odd, line[1], line[3]);
    }
  }
  _mm_sfence();  // streamed lines are in memory before anyone is told
}

}  // namespace fewbit

FEWBIT_ISA_END

#endif
