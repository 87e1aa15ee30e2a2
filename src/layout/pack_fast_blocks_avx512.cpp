// SPDX-License-Identifier: Apache-2.0
#include "layout/pack_fast_blocks.hpp"

#if defined(__x86_64__)

#include <cstring>

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512vl,avx512vbmi")

#include "layout/pack_fast_blocks_lanes.hpp"

namespace fewbit {
namespace {

struct Lanes512 {
  using Register = __m512i;
  static constexpr int log2 = 9;
  static constexpr bool whole_lines = true;

  static inline Register load(const std::uint8_t* from) { return _mm512_loadu_si512(from); }
  static inline void store(std::uint8_t* to, Register x) { _mm512_storeu_si512(to, x); }
  static inline void stream(std::uint8_t* to, Register x) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), x);
  }

  struct Exchange {
    __m128i shift;  // within bytes
    Register low;   // bits whose address bit is 0
    Register a;     // whole bytes: of a and b, those of the new a
    Register b;
  };
  static inline Exchange make_exchange(const BlockMoves& moves, std::int64_t i) {
    const int low = moves.exchanges[i].low;
    Exchange e{};
    if (low < 3) {
      constexpr unsigned char masks[] = {0x55, 0x33, 0x0f};
      e.shift = _mm_cvtsi32_si128(1 << low);
      e.low = _mm512_set1_epi8(static_cast<char>(masks[low]));
    } else {
      e.a = load(moves.pairs + 128 * i);
      e.b = load(moves.pairs + 128 * i + 64);
    }
    return e;
  }
  static inline void exchange_bits(const Exchange& e, Register& a, Register& b) {
    constexpr int mask_or_other = 0xca;  // of a ternary: y where x is set, else z
    const Register x = a;
    const Register y = b;
    a = _mm512_ternarylogic_epi64(e.low, x, _mm512_sll_epi64(y, e.shift), mask_or_other);
    b = _mm512_ternarylogic_epi64(e.low, _mm512_srl_epi64(x, e.shift), y, mask_or_other);
  }
  static inline void exchange_bytes(const Exchange& e, Register& a, Register& b) {
    const Register x = a;
    const Register y = b;
    a = _mm512_permutex2var_epi8(x, e.a, y);
    b = _mm512_permutex2var_epi8(x, e.b, y);
  }

  static inline Register shuffle(Register x, Register indexes) {
    return _mm512_permutexvar_epi8(indexes, x);
  }

  struct Nibbles {
    Register table;
    explicit inline Nibbles(const BlockMoves& moves)
        : table(_mm512_broadcast_i32x4(
              _mm_loadu_si128(reinterpret_cast<const __m128i*>(moves.nibbles)))) {}
  };
  static inline Register change(const Nibbles& nibbles, Register x) {
    const Register half = _mm512_set1_epi8(15);
    const Register low = _mm512_shuffle_epi8(nibbles.table, _mm512_and_si512(x, half));
    const Register high = _mm512_and_si512(_mm512_srli_epi16(x, 4), half);
    return _mm512_or_si512(low, _mm512_slli_epi16(_mm512_shuffle_epi8(nibbles.table, high), 4));
  }

  // 64 entries each.
  struct Bytes {
    Register first, second, third, fourth;
    explicit inline Bytes(const BlockMoves& moves)
        : first(load(moves.bytes)),
          second(load(moves.bytes + 64)),
          third(load(moves.bytes + 128)),
          fourth(load(moves.bytes + 192)) {}
  };
  static inline Register change(const Bytes& table, Register x) {
    const Register low = _mm512_permutex2var_epi8(table.first, x, table.second);
    const Register high = _mm512_permutex2var_epi8(table.third, x, table.fourth);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(x), high);
  }
};

}  // namespace

void move_blocks_avx512(const BlockMoves& moves, const BlockRun& run) {
  BlockLanes<Lanes512>::move_blocks(moves, run);
}

void fence_blocks_avx512() { _mm_sfence(); }

}  // namespace fewbit

FEWBIT_ISA_END

#endif
