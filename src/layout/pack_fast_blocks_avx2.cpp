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

void run_exchange(BitExchange e, __m256i* registers, std::int64_t count) {
  using Pass = void (*)(__m256i*, std::int64_t, std::int64_t);
  constexpr Pass passes[register_log2] = {exchange_pass<0>, exchange_pass<1>, exchange_pass<2>,
                                          exchange_pass<3>, exchange_pass<4>, exchange_pass<5>,
                                          exchange_pass<6>, exchange_pass<7>};
  passes[e.low](registers, count, std::int64_t{1} << (e.high - register_log2));
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

// One look-up for each value of the high half of a byte.
inline __m256i change_bytes(const __m256i* table, __m256i x) {
  const __m256i half = _mm256_set1_epi8(15);
  const __m256i low = _mm256_and_si256(x, half);
  const __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 4), half);
  __m256i result = _mm256_setzero_si256();
  for (int i = 0; i < 16; ++i) {
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
    for (std::int64_t i = 0; i < count; ++i) registers[i] = change_bytes(table, registers[i]);
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
    for (std::int64_t e = 0; e < moves.exchange_count; ++e) {
      run_exchange(moves.exchanges[e], reinterpret_cast<__m256i*>(buffer),
                   moves.buffer_bytes / register_bytes);
    }
    write_out(moves, buffer, run.out + block.to);
  }
  _mm_sfence();  // streamed lines are in memory before anyone is told
}

}  // namespace fewbit

FEWBIT_ISA_END

#endif
