// SPDX-License-Identifier: Apache-2.0
#include "layout/pack_fast_blocks.hpp"

#if defined(__x86_64__)

#include <cstring>

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx512f,avx512bw,avx512vl")

namespace fewbit {
namespace {

constexpr int register_log2 = 9;
constexpr std::int64_t register_bytes = 64;

constexpr int mask_or_other = 0xca;  // of a ternary: y where x is set, else z

// Bits whose address bit `bit` is 0, for bits within 64.
template <int bit>
inline __m512i low_bits() {
  constexpr unsigned long long masks[] = {0x5555555555555555ULL, 0x3333333333333333ULL,
                                          0x0f0f0f0f0f0f0f0fULL, 0x00ff00ff00ff00ffULL,
                                          0x0000ffff0000ffffULL, 0x00000000ffffffffULL};
  return _mm512_set1_epi64(static_cast<long long>(masks[bit]));
}

template <int bit>
inline void exchange(__m512i& a, __m512i& b) {
  const __m512i x = a;
  const __m512i y = b;
  if constexpr (bit == 8) {
    a = _mm512_shuffle_i64x2(x, y, 0x44);
    b = _mm512_shuffle_i64x2(x, y, 0xee);
  } else if constexpr (bit == 7) {
    a = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13), y);
    b = _mm512_permutex2var_epi64(x, _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15), y);
  } else if constexpr (bit == 6) {
    a = _mm512_unpacklo_epi64(x, y);
    b = _mm512_unpackhi_epi64(x, y);
  } else {
    constexpr unsigned shift = 1U << bit;
    a = _mm512_ternarylogic_epi64(low_bits<bit>(), x, _mm512_slli_epi64(y, shift), mask_or_other);
    b = _mm512_ternarylogic_epi64(low_bits<bit>(), _mm512_srli_epi64(x, shift), y, mask_or_other);
  }
}

// An exchange with the registers that are `distance` apart.
template <int bit>
void exchange_pass(__m512i* registers, std::int64_t count, std::int64_t distance) {
  for (std::int64_t base = 0; base < count; base += 2 * distance) {
    for (std::int64_t i = base; i < base + distance; ++i) {
      __m512i a = _mm512_load_si512(registers + i);
      __m512i b = _mm512_load_si512(registers + i + distance);
      exchange<bit>(a, b);
      _mm512_store_si512(registers + i, a);
      _mm512_store_si512(registers + i + distance, b);
    }
  }
}

// Two exchanges of the same registers.
template <int first, int second>
void exchange_twice(__m512i* registers, std::int64_t count, std::int64_t distance) {
  for (std::int64_t base = 0; base < count; base += 2 * distance) {
    for (std::int64_t i = base; i < base + distance; ++i) {
      __m512i a = _mm512_load_si512(registers + i);
      __m512i b = _mm512_load_si512(registers + i + distance);
      exchange<first>(a, b);
      exchange<second>(a, b);
      _mm512_store_si512(registers + i, a);
      _mm512_store_si512(registers + i + distance, b);
    }
  }
}

struct Distances {
  std::int64_t first, second;
};

// The first exchange of four registers in one direction, the second one in the other.
template <int first, int second>
inline void exchange_four(__m512i* registers, Distances d) {
  __m512i a = _mm512_load_si512(registers);
  __m512i b = _mm512_load_si512(registers + d.first);
  __m512i c = _mm512_load_si512(registers + d.second);
  __m512i e = _mm512_load_si512(registers + d.first + d.second);
  exchange<first>(a, b);
  exchange<first>(c, e);
  exchange<second>(a, c);
  exchange<second>(b, e);
  _mm512_store_si512(registers, a);
  _mm512_store_si512(registers + d.first, b);
  _mm512_store_si512(registers + d.second, c);
  _mm512_store_si512(registers + d.first + d.second, e);
}

// Two exchanges while the registers are loaded.
template <int first, int second>
void exchange_pair(__m512i* registers, std::int64_t count, Distances d) {
  if (d.first == d.second) return exchange_twice<first, second>(registers, count, d.first);
  const std::int64_t near = d.first < d.second ? d.first : d.second;
  const std::int64_t far = d.first + d.second - near;
  for (std::int64_t i = 0; i < count; i += 2 * far) {
    for (std::int64_t j = i; j < i + far; j += 2 * near) {
      for (std::int64_t r = j; r < j + near; ++r) exchange_four<first, second>(registers + r, d);
    }
  }
}

using Pass = void (*)(__m512i*, std::int64_t, std::int64_t);
using PairPass = void (*)(__m512i*, std::int64_t, Distances);

template <int... bits>
struct Passes {
  static constexpr Pass single[] = {exchange_pass<bits>...};
  template <int first>
  struct After {
    static constexpr PairPass pair[] = {exchange_pair<first, bits>...};
  };
  static constexpr const PairPass* pairs[] = {After<bits>::pair...};
};
using AllPasses = Passes<0, 1, 2, 3, 4, 5, 6, 7, 8>;

std::int64_t distance_of(BitExchange e) { return std::int64_t{1} << (e.high - register_log2); }

void run_exchanges(const BlockMoves& moves, __m512i* registers) {
  const std::int64_t count = moves.buffer_bytes / register_bytes;
  std::int64_t i = 0;
  for (; i + 1 < moves.exchange_count; i += 2) {
    const BitExchange first = moves.exchanges[i];
    const BitExchange second = moves.exchanges[i + 1];
    AllPasses::pairs[first.low][second.low](
        registers, count, {.first = distance_of(first), .second = distance_of(second)});
  }
  if (i == moves.exchange_count) return;
  const BitExchange last = moves.exchanges[i];
  AllPasses::single[last.low](registers, count, distance_of(last));
}

// ahead: bytes to the source of the next block.
template <std::int64_t bytes>
void read_lines(const BlockMoves& moves, const std::uint8_t* source, std::int64_t ahead,
                std::uint8_t* buffer) {
  for (std::int64_t i = 0; i < moves.line_count; ++i) {
    const BlockCopy line = moves.lines[i];
    const std::uint8_t* const from = source + line.from;
    // Lines are more streams than the hardware follows.
    _mm_prefetch(reinterpret_cast<const char*>(from + ahead), _MM_HINT_T0);
    std::memcpy(buffer + line.to, from, bytes);
  }
}

void read_long_lines(const BlockMoves& moves, const std::uint8_t* source, std::int64_t ahead,
                     std::uint8_t* buffer) {
  for (std::int64_t i = 0; i < moves.line_count; ++i) {
    const std::uint8_t* const from = source + moves.lines[i].from;
    std::uint8_t* const to = buffer + moves.lines[i].to;
    for (std::int64_t at = 0; at < moves.line_bytes; at += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(from + at + ahead), _MM_HINT_T0);
      std::memcpy(to + at, from + at, 64);
    }
  }
}

void read_source(const BlockMoves& moves, const std::uint8_t* source, std::int64_t ahead,
                 std::uint8_t* buffer) {
  switch (moves.line_bytes) {
    case 4:
      return read_lines<4>(moves, source, ahead, buffer);
    case 8:
      return read_lines<8>(moves, source, ahead, buffer);
    case 16:
      return read_lines<16>(moves, source, ahead, buffer);
    case 32:
      return read_lines<32>(moves, source, ahead, buffer);
    default:
      return read_long_lines(moves, source, ahead, buffer);
  }
}

template <std::int64_t bytes>
void write_chunks(const BlockMoves& moves, const std::uint8_t* buffer, std::uint8_t* out) {
  for (std::int64_t i = 0; i < moves.chunk_count; ++i) {
    std::memcpy(out + moves.chunks[i].to, buffer + moves.chunks[i].from, bytes);
  }
}

// Chunks rise in the result, so those of a line follow each other; whole lines go past the caches,
// where they would push out the source: nobody reads the result soon.
void write_registers(const BlockMoves& moves, const std::uint8_t* buffer, std::uint8_t* out) {
  for (std::int64_t i = 0; i < moves.chunk_count; ++i) {
    std::uint8_t* const to = out + moves.chunks[i].to;
    const std::uint8_t* const from = buffer + moves.chunks[i].from;
    const bool aligned = reinterpret_cast<std::uintptr_t>(to) % register_bytes == 0;
    for (std::int64_t at = 0; at < moves.chunk_bytes; at += register_bytes) {
      const __m512i x = _mm512_load_si512(reinterpret_cast<const __m512i*>(from + at));
      if (aligned) {
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), x);
      } else {
        _mm512_storeu_si512(reinterpret_cast<__m512i*>(to + at), x);
      }
    }
  }
}

void write_out(const BlockMoves& moves, const std::uint8_t* buffer, std::uint8_t* out) {
  switch (moves.chunk_bytes) {
    case 4:
      return write_chunks<4>(moves, buffer, out);
    case 8:
      return write_chunks<8>(moves, buffer, out);
    case 16:
      return write_chunks<16>(moves, buffer, out);
    case 32:
      return write_chunks<32>(moves, buffer, out);
    default:
      return write_registers(moves, buffer, out);
  }
}

inline __m512i load_table(const std::uint8_t* table) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}

inline __m512i change_nibbles(__m512i table, __m512i x) {
  const __m512i half = _mm512_set1_epi8(15);
  const __m512i low = _mm512_shuffle_epi8(table, _mm512_and_si512(x, half));
  const __m512i high = _mm512_and_si512(_mm512_srli_epi16(x, 4), half);
  return _mm512_or_si512(low, _mm512_slli_epi16(_mm512_shuffle_epi8(table, high), 4));
}

// One look-up for each value that the high halves of bytes have, first to last.
inline __m512i change_bytes(const __m512i* table, int first, int last, __m512i x) {
  const __m512i half = _mm512_set1_epi8(15);
  const __m512i low = _mm512_and_si512(x, half);
  const __m512i high = _mm512_and_si512(_mm512_srli_epi16(x, 4), half);
  __m512i result = _mm512_setzero_si512();
  for (int i = first; i <= last; ++i) {
    const __mmask64 mine = _mm512_cmpeq_epi8_mask(high, _mm512_set1_epi8(static_cast<char>(i)));
    result = _mm512_mask_shuffle_epi8(result, mine, table[i], low);
  }
  return result;
}

void change(const BlockMoves& moves, std::uint8_t* buffer) {
  auto* const registers = reinterpret_cast<__m512i*>(buffer);
  const std::int64_t count = moves.buffer_bytes / register_bytes;
  if (moves.nibbles != nullptr) {
    const __m512i table = load_table(moves.nibbles);
    for (std::int64_t i = 0; i < count; ++i) registers[i] = change_nibbles(table, registers[i]);
  }
  if (moves.bytes != nullptr) {
    __m512i table[16];
    for (int i = 0; i < 16; ++i) table[i] = load_table(moves.bytes + 16 * i);
    for (std::int64_t i = 0; i < count; ++i) {
      registers[i] = change_bytes(table, moves.first_byte / 16, moves.last_byte / 16, registers[i]);
    }
  }
}

}  // namespace

void move_blocks_avx512(const BlockMoves& moves, const BlockRun& run) {
  alignas(64) std::uint8_t buffer[block_buffer_bytes];
  for (std::int64_t i = 0; i < run.count; ++i) {
    const BlockCopy block = run.blocks[i];
    const std::int64_t next = run.blocks[i + 1 < run.count ? i + 1 : i].from;
    read_source(moves, run.source + block.from, next - block.from, buffer);
    change(moves, buffer);
    run_exchanges(moves, reinterpret_cast<__m512i*>(buffer));
    write_out(moves, buffer, run.out + block.to);
  }
}

void fence_blocks_avx512() { _mm_sfence(); }

}  // namespace fewbit

FEWBIT_ISA_END

#endif
