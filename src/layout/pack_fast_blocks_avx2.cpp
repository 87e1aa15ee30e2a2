// SPDX-License-Identifier: Apache-2.0
#include "layout/pack_fast_blocks.hpp"

#if defined(__x86_64__)

#include <cstring>

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx2")

#include "layout/pack_fast_blocks_lanes.hpp"

namespace fewbit {
namespace {

struct Lanes256 {
  using Register = __m256i;
  static constexpr int log2 = 8;
  static constexpr bool whole_lines = false;

  static inline Register load(const std::uint8_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  static inline void store(std::uint8_t* to, Register x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), x);
  }
  static inline void stream(std::uint8_t* to, Register x) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), x);
  }

  struct Exchange {
    int bit;
    __m128i shift;  // within 64 bits
    Register low;   // of these, those whose address bit is 0
  };
  static inline Exchange make_exchange(const BlockMoves& moves, std::int64_t i) {
    constexpr unsigned long long masks[] = {0x5555555555555555ULL, 0x3333333333333333ULL,
                                            0x0f0f0f0f0f0f0f0fULL, 0x00ff00ff00ff00ffULL,
                                            0x0000ffff0000ffffULL, 0x00000000ffffffffULL};
    Exchange e;
    e.bit = moves.exchanges[i].low;
    e.shift = _mm_cvtsi32_si128(e.bit < 6 ? 1 << e.bit : 0);
    e.low = _mm256_set1_epi64x(static_cast<long long>(e.bit < 6 ? masks[e.bit] : 0));
    return e;
  }
  static inline void exchange_bits(const Exchange& e, Register& a, Register& b) {
    const Register differ =
        _mm256_and_si256(_mm256_xor_si256(_mm256_srl_epi64(a, e.shift), b), e.low);
    b = _mm256_xor_si256(b, differ);
    a = _mm256_xor_si256(a, _mm256_sll_epi64(differ, e.shift));
  }
  static inline void exchange_bytes(const Exchange& e, Register& a, Register& b) {
    const Register x = a;
    const Register y = b;
    if (e.bit == 7) {
      a = _mm256_permute2x128_si256(x, y, 0x20);
      b = _mm256_permute2x128_si256(x, y, 0x31);
    } else if (e.bit == 6) {
      a = _mm256_unpacklo_epi64(x, y);
      b = _mm256_unpackhi_epi64(x, y);
    } else if (e.bit == 5) {
      a = _mm256_blend_epi32(x, _mm256_slli_epi64(y, 32), 0xaa);
      b = _mm256_blend_epi32(_mm256_srli_epi64(x, 32), y, 0xaa);
    } else if (e.bit == 4) {
      a = _mm256_blend_epi16(x, _mm256_slli_epi32(y, 16), 0xaa);
      b = _mm256_blend_epi16(_mm256_srli_epi32(x, 16), y, 0xaa);
    } else {
      exchange_bits(e, a, b);
    }
  }

  static inline Register shuffle(Register x, Register indexes) {
    const Register from_low = _mm256_shuffle_epi8(_mm256_permute2x128_si256(x, x, 0x00), indexes);
    const Register from_high = _mm256_shuffle_epi8(_mm256_permute2x128_si256(x, x, 0x11), indexes);
    return _mm256_blendv_epi8(from_low, from_high,
                              _mm256_cmpgt_epi8(indexes, _mm256_set1_epi8(15)));
  }

  static inline Register load_table(const std::uint8_t* table) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  }

  struct Nibbles {
    Register table;
    explicit inline Nibbles(const BlockMoves& moves) : table(load_table(moves.nibbles)) {}
  };
  static inline Register change(const Nibbles& nibbles, Register x) {
    const Register half = _mm256_set1_epi8(15);
    const Register low = _mm256_shuffle_epi8(nibbles.table, _mm256_and_si256(x, half));
    const Register high = _mm256_and_si256(_mm256_srli_epi16(x, 4), half);
    return _mm256_or_si256(low, _mm256_slli_epi16(_mm256_shuffle_epi8(nibbles.table, high), 4));
  }

  struct Bytes {
    Register table[16];
    int first, last;  // of those that there are
    explicit inline Bytes(const BlockMoves& moves)
        : first(moves.first_byte / 16), last(moves.last_byte / 16) {
      for (int i = 0; i < 16; ++i) table[i] = load_table(moves.bytes + 16 * i);
    }
  };
  // One look-up for each value that the high halves of bytes have.
  static inline Register change(const Bytes& bytes, Register x) {
    const Register half = _mm256_set1_epi8(15);
    const Register low = _mm256_and_si256(x, half);
    const Register high = _mm256_and_si256(_mm256_srli_epi16(x, 4), half);
    Register result = _mm256_setzero_si256();
    for (int i = bytes.first; i <= bytes.last; ++i) {
      const Register mine = _mm256_cmpeq_epi8(high, _mm256_set1_epi8(static_cast<char>(i)));
      result =
          _mm256_or_si256(result, _mm256_and_si256(mine, _mm256_shuffle_epi8(bytes.table[i], low)));
    }
    return result;
  }
};

}  // namespace

void move_blocks_avx2(const BlockMoves& moves, const BlockRun& run) {
  BlockLanes<Lanes256>::move_blocks(moves, run);
}

void fence_blocks_avx2() { _mm_sfence(); }

}  // namespace fewbit

FEWBIT_ISA_END

#endif
