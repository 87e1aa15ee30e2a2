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

// Where a pass reads and writes its registers: one inside the buffer, or, as the first and the last
// one, in the source and in the result.
enum class Ends { inside, outside };
struct Places {
  const std::uint8_t* from;
  const std::int64_t* from_of;  // of each register; inside: in order
  std::uint8_t* to;
  const std::int64_t* to_of;
  std::int64_t ahead;  // bytes to the source of the next block
};

template <Ends ends>
inline __m256i load(const Places& p, std::int64_t r) {
  if constexpr (ends == Ends::inside) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(p.from) + r);
  }
  const std::uint8_t* const at = p.from + p.from_of[r];
  // Lines are more streams than the hardware follows.
  _mm_prefetch(reinterpret_cast<const char*>(at + p.ahead), _MM_HINT_T0);
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

template <Ends ends>
inline void store(const Places& p, std::int64_t r, __m256i x) {
  if constexpr (ends == Ends::inside) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p.to) + r, x);
    return;
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p.to + p.to_of[r]), x);
}

struct Distances {
  std::int64_t first, second;
};

// Two exchanges of the same registers.
template <Ends ends, int first, int second>
inline void exchange_two(const Places& p, std::int64_t r, std::int64_t distance) {
  __m256i a = load<ends>(p, r);
  __m256i b = load<ends>(p, r + distance);
  exchange<first>(a, b);
  if constexpr (second >= 0) exchange<second>(a, b);
  store<ends>(p, r, a);
  store<ends>(p, r + distance, b);
}

// The first exchange of four registers in one direction, the second one in the other.
template <Ends ends, int first, int second>
inline void exchange_four(const Places& p, std::int64_t r, Distances d) {
  __m256i a = load<ends>(p, r);
  __m256i b = load<ends>(p, r + d.first);
  __m256i c = load<ends>(p, r + d.second);
  __m256i e = load<ends>(p, r + d.first + d.second);
  exchange<first>(a, b);
  exchange<first>(c, e);
  exchange<second>(a, c);
  exchange<second>(b, e);
  store<ends>(p, r, a);
  store<ends>(p, r + d.first, b);
  store<ends>(p, r + d.second, c);
  store<ends>(p, r + d.first + d.second, e);
}

// An exchange with the registers that are `distance` apart; second < 0: only one.
template <Ends ends, int first, int second>
void pass_in_line(const Places& p, std::int64_t count, std::int64_t distance) {
  for (std::int64_t i = 0; i < count; i += 2 * distance) {
    for (std::int64_t r = i; r < i + distance; ++r) {
      exchange_two<ends, first, second>(p, r, distance);
    }
  }
}

// Two exchanges while the registers are loaded.
template <Ends ends, int first, int second>
void pass(const Places& p, std::int64_t count, Distances d) {
  if (d.first == d.second) return pass_in_line<ends, first, second>(p, count, d.first);
  const std::int64_t near = d.first < d.second ? d.first : d.second;
  const std::int64_t far = d.first + d.second - near;
  for (std::int64_t i = 0; i < count; i += 2 * far) {
    for (std::int64_t j = i; j < i + far; j += 2 * near) {
      for (std::int64_t r = j; r < j + near; ++r) exchange_four<ends, first, second>(p, r, d);
    }
  }
}

using Pass = void (*)(const Places&, std::int64_t, std::int64_t);
using PairPass = void (*)(const Places&, std::int64_t, Distances);

template <Ends ends, int... bits>
struct Passes {
  static constexpr Pass single[] = {pass_in_line<ends, bits, -1>...};
  template <int first>
  struct After {
    static constexpr PairPass pair[] = {pass<ends, first, bits>...};
  };
  static constexpr const PairPass* pairs[] = {After<bits>::pair...};
};
template <Ends ends>
using AllPasses = Passes<ends, 0, 1, 2, 3, 4, 5, 6, 7>;

std::int64_t distance_of(BitExchange e) { return std::int64_t{1} << (e.high - register_log2); }

// The exchanges from e[0] on, one or two of them.
template <Ends ends>
void run_pass(const BitExchange* e, bool both, const Places& p, std::int64_t count) {
  if (!both) return AllPasses<ends>::single[e[0].low](p, count, distance_of(e[0]));
  AllPasses<ends>::pairs[e[0].low][e[1].low](
      p, count, {.first = distance_of(e[0]), .second = distance_of(e[1])});
}

struct Identity {
  std::int64_t of[block_buffer_bytes / register_bytes];
};
constexpr Identity make_identity() {
  Identity identity{};
  for (std::int64_t r = 0; r < block_buffer_bytes / register_bytes; ++r) {
    identity.of[r] = r * register_bytes;
  }
  return identity;
}
constexpr Identity in_buffer = make_identity();

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

struct BlockPlace {
  const std::uint8_t* source;
  std::int64_t ahead;
  std::uint8_t* out;
};

void move_block(const BlockMoves& moves, const BlockPlace& block, std::uint8_t* buffer) {
  const std::int64_t count = moves.buffer_bytes / register_bytes;
  const std::int64_t exchanges = moves.exchange_count;
  const bool table = moves.nibbles != nullptr || moves.bytes != nullptr;
  const bool from_source = moves.register_from != nullptr && !table && exchanges > 0;
  if (!from_source) {
    read_source(moves, block.source, block.ahead, buffer);
    change(moves, buffer);
  }
  for (std::int64_t e = 0; e < exchanges; e += 2) {
    Places p{
        .from = buffer, .from_of = in_buffer.of, .to = buffer, .to_of = in_buffer.of, .ahead = 0};
    if (e == 0 && from_source) {
      p.from = block.source;
      p.from_of = moves.register_from;
      p.ahead = block.ahead;
    }
    const bool both = e + 1 < exchanges;
    if (e == 0 && from_source) {
      run_pass<Ends::outside>(moves.exchanges, both, p, count);
    } else {
      run_pass<Ends::inside>(moves.exchanges + e, both, p, count);
    }
  }
  write_out(moves, buffer, block.out);
}

}  // namespace

void move_blocks_avx2(const BlockMoves& moves, const BlockRun& run) {
  alignas(64) std::uint8_t buffer[block_buffer_bytes];
  for (std::int64_t i = 0; i < run.count; ++i) {
    const BlockCopy block = run.blocks[i];
    const std::int64_t next = run.blocks[i + 1 < run.count ? i + 1 : i].from;
    move_block(
        moves,
        {.source = run.source + block.from, .ahead = next - block.from, .out = run.out + block.to},
        buffer);
  }
}

void fence_blocks_avx2() { _mm_sfence(); }

}  // namespace fewbit

FEWBIT_ISA_END

#endif
