// SPDX-License-Identifier: Apache-2.0
#include "layout/pack_fast_blocks.hpp"

#if defined(__x86_64__)

#include <cstring>

#include "core/isa_region.hpp"

FEWBIT_ISA_BEGIN("avx2")

namespace fewbit {
namespace {

constexpr int register_log2 = 8;
constexpr std::int64_t register_bytes = 32;

// Bits whose address bit `bit` is 0, for bits within 64.
template <int bit>
inline __m256i low_bits() {
  constexpr unsigned long long masks[] = {0x5555555555555555ULL, 0x3333333333333333ULL,
                                          0x0f0f0f0f0f0f0f0fULL, 0x00ff00ff00ff00ffULL};
  return _mm256_set1_epi64x(static_cast<long long>(masks[bit]));
}

template <int bit>
inline void exchange(__m256i& a, __m256i& b) {
  const __m256i x = a;
  const __m256i y = b;
  if constexpr (bit == 7) {
    a = _mm256_permute2x128_si256(x, y, 0x20);
    b = _mm256_permute2x128_si256(x, y, 0x31);
  } else if constexpr (bit == 6) {
    a = _mm256_unpacklo_epi64(x, y);
    b = _mm256_unpackhi_epi64(x, y);
  } else if constexpr (bit == 5) {
    a = _mm256_blend_epi32(x, _mm256_slli_epi64(y, 32), 0xaa);
    b = _mm256_blend_epi32(_mm256_srli_epi64(x, 32), y, 0xaa);
  } else if constexpr (bit == 4) {
    a = _mm256_blend_epi16(x, _mm256_slli_epi32(y, 16), 0xaa);
    b = _mm256_blend_epi16(_mm256_srli_epi32(x, 16), y, 0xaa);
  } else {
    constexpr int shift = 1 << bit;
    const __m256i differ =
        _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi64(x, shift), y), low_bits<bit>());
    b = _mm256_xor_si256(y, differ);
    a = _mm256_xor_si256(x, _mm256_slli_epi64(differ, shift));
  }
}

// An exchange with the registers that are `distance` apart.
template <int bit>
void exchange_pass(__m256i* registers, std::int64_t count, std::int64_t distance) {
  for (std::int64_t base = 0; base < count; base += 2 * distance) {
    for (std::int64_t i = base; i < base + distance; ++i) {
      __m256i a = _mm256_load_si256(registers + i);
      __m256i b = _mm256_load_si256(registers + i + distance);
      exchange<bit>(a, b);
      _mm256_store_si256(registers + i, a);
      _mm256_store_si256(registers + i + distance, b);
    }
  }
}

// Two exchanges of the same registers.
template <int first, int second>
void exchange_twice(__m256i* registers, std::int64_t count, std::int64_t distance) {
  for (std::int64_t base = 0; base < count; base += 2 * distance) {
    for (std::int64_t i = base; i < base + distance; ++i) {
      __m256i a = _mm256_load_si256(registers + i);
      __m256i b = _mm256_load_si256(registers + i + distance);
      exchange<first>(a, b);
      exchange<second>(a, b);
      _mm256_store_si256(registers + i, a);
      _mm256_store_si256(registers + i + distance, b);
    }
  }
}

struct Distances {
  std::int64_t first, second;
};

// The first exchange of four registers in one direction, the second one in the other.
template <int first, int second>
inline void exchange_four(__m256i* registers, Distances d) {
  __m256i a = _mm256_load_si256(registers);
  __m256i b = _mm256_load_si256(registers + d.first);
  __m256i c = _mm256_load_si256(registers + d.second);
  __m256i e = _mm256_load_si256(registers + d.first + d.second);
  exchange<first>(a, b);
  exchange<first>(c, e);
  exchange<second>(a, c);
  exchange<second>(b, e);
  _mm256_store_si256(registers, a);
  _mm256_store_si256(registers + d.first, b);
  _mm256_store_si256(registers + d.second, c);
  _mm256_store_si256(registers + d.first + d.second, e);
}

// Two exchanges while the registers are loaded.
template <int first, int second>
void exchange_pair(__m256i* registers, std::int64_t count, Distances d) {
  if (d.first == d.second) return exchange_twice<first, second>(registers, count, d.first);
  const std::int64_t near = d.first < d.second ? d.first : d.second;
  const std::int64_t far = d.first + d.second - near;
  for (std::int64_t i = 0; i < count; i += 2 * far) {
    for (std::int64_t j = i; j < i + far; j += 2 * near) {
      for (std::int64_t r = j; r < j + near; ++r) exchange_four<first, second>(registers + r, d);
    }
  }
}

using Pass = void (*)(__m256i*, std::int64_t, std::int64_t);
using PairPass = void (*)(__m256i*, std::int64_t, Distances);

template <int... bits>
struct Passes {
  static constexpr Pass single[] = {exchange_pass<bits>...};
  template <int first>
  struct After {
    static constexpr PairPass pair[] = {exchange_pair<first, bits>...};
  };
  static constexpr const PairPass* pairs[] = {After<bits>::pair...};
};
using AllPasses = Passes<0, 1, 2, 3, 4, 5, 6, 7>;

std::int64_t distance_of(BitExchange e) { return std::int64_t{1} << (e.high - register_log2); }

void run_exchanges(const BlockMoves& moves, __m256i* registers) {
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
      const __m256i x = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + at));
      if (aligned) {
        _mm256_stream_si256(reinterpret_cast<__m256i*>(to + at), x);
      } else {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at), x);
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
    default:
      return write_registers(moves, buffer, out);
  }
}

inline __m256i load_table(const std::uint8_t* table) {
  return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
}

inline __m256i change_nibbles(__m256i table, __m256i x) {
  const __m256i half = _mm256_set1_epi8(15);
  const __m256i low = _mm256_shuffle_epi8(table, _mm256_and_si256(x, half));
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 4), half);
  return _mm256_or_si256(low, _mm256_slli_epi16(_mm256_shuffle_epi8(table, high), 4));
}

// One look-up for each value that the high halves of bytes have, first to last.
inline __m256i change_bytes(const __m256i* table, int first, int last, __m256i x) {
  const __m256i half = _mm256_set1_epi8(15);
  const __m256i low = _mm256_and_si256(x, half);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 4), half);
  __m256i result = _mm256_setzero_si256();
  for (int i = first; i <= last; ++i) {
    const __m256i mine = _mm256_cmpeq_epi8(high, _mm256_set1_epi8(static_cast<char>(i)));
    result = _mm256_or_si256(result, _mm256_and_si256(mine, _mm256_shuffle_epi8(table[i], low)));
  }
  return result;
}

void change(const BlockMoves& moves, std::uint8_t* buffer) {
  auto* const registers = reinterpret_cast<__m256i*>(buffer);
  const std::int64_t count = moves.buffer_bytes / register_bytes;
  if (moves.nibbles != nullptr) {
    const __m256i table = load_table(moves.nibbles);
    for (std::int64_t i = 0; i < count; ++i) registers[i] = change_nibbles(table, registers[i]);
  }
  if (moves.bytes != nullptr) {
    __m256i table[16];
    for (int i = 0; i < 16; ++i) table[i] = load_table(moves.bytes + 16 * i);
    for (std::int64_t i = 0; i < count; ++i) {
      registers[i] = change_bytes(table, moves.first_byte / 16, moves.last_byte / 16, registers[i]);
    }
  }
}

}  // namespace

void move_blocks_avx2(const BlockMoves& moves, const BlockRun& run) {
  alignas(64) std::uint8_t buffer[block_buffer_bytes];
  for (std::int64_t i = 0; i < run.count; ++i) {
    const BlockCopy block = run.blocks[i];
    const std::int64_t next = run.blocks[i + 1 < run.count ? i + 1 : i].from;
    read_source(moves, run.source + block.from, next - block.from, buffer);
    change(moves, buffer);
    run_exchanges(moves, reinterpret_cast<__m256i*>(buffer));
    write_out(moves, buffer, run.out + block.to);
  }
}

void fence_blocks_avx2() { _mm_sfence(); }

}  // namespace fewbit

FEWBIT_ISA_END

#endif
