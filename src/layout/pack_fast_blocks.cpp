// SPDX-License-Identifier: Apache-2.0
// The portable variant, and the choice of one.
#include "layout/pack_fast_blocks.hpp"

#include <bit>
#include <cstring>

namespace fewbit {
namespace {

static_assert(std::endian::native == std::endian::little, "address bits are those of words");

constexpr int word_log2 = 6;

template <std::int64_t bytes>
void copy_all(const BlockCopy* copies, std::int64_t count, const std::uint8_t* from,
              std::uint8_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(to + copies[i].to, from + copies[i].from, bytes);
  }
}

void copy_pieces(const BlockCopy* copies, std::int64_t count, std::int64_t bytes,
                 const std::uint8_t* from, std::uint8_t* to) {
  switch (bytes) {
    case 4:
      return copy_all<4>(copies, count, from, to);
    case 8:
      return copy_all<8>(copies, count, from, to);
    case 16:
      return copy_all<16>(copies, count, from, to);
    case 32:
      return copy_all<32>(copies, count, from, to);
    case 64:
      return copy_all<64>(copies, count, from, to);
    default:
      for (std::int64_t i = 0; i < count; ++i) {
        std::memcpy(to + copies[i].to, from + copies[i].from, static_cast<std::size_t>(bytes));
      }
  }
}

// Bits whose address bit `bit` is 0.
constexpr std::uint64_t low_bits(int bit) {
  std::uint64_t mask = 0;
  for (int i = 0; i < 64; ++i) {
    if ((i >> bit & 1) == 0) mask |= std::uint64_t{1} << i;
  }
  return mask;
}

template <int bit>
void exchange_pass(std::uint64_t* words, std::int64_t count, std::int64_t distance) {
  constexpr int shift = 1 << bit;
  constexpr std::uint64_t low = low_bits(bit);
  for (std::int64_t base = 0; base < count; base += 2 * distance) {
    std::uint64_t* const a = words + base;
    std::uint64_t* const b = a + distance;
    for (std::int64_t i = 0; i < distance; ++i) {
      const std::uint64_t differ = ((a[i] >> shift) ^ b[i]) & low;
      b[i] ^= differ;
      a[i] ^= differ << shift;
    }
  }
}

using ExchangePass = void (*)(std::uint64_t*, std::int64_t, std::int64_t);
constexpr ExchangePass passes[word_log2] = {exchange_pass<0>, exchange_pass<1>, exchange_pass<2>,
                                            exchange_pass<3>, exchange_pass<4>, exchange_pass<5>};

void change_bytes(const BlockMoves& moves, std::uint8_t* buffer) {
  if (moves.nibbles != nullptr) {
    for (std::int64_t i = 0; i < moves.buffer_bytes; ++i) {
      buffer[i] = static_cast<std::uint8_t>(moves.nibbles[buffer[i] & 15U] |
                                            moves.nibbles[buffer[i] >> 4U] << 4U);
    }
  }
  if (moves.bytes != nullptr) {
    for (std::int64_t i = 0; i < moves.buffer_bytes; ++i) buffer[i] = moves.bytes[buffer[i]];
  }
}

void move_block(const BlockMoves& moves, const BlockCopy* lines, const std::uint8_t* source,
                std::uint8_t* out) {
  std::uint64_t words[block_buffer_bytes / 8];
  auto* const bytes = reinterpret_cast<std::uint8_t*>(words);
  copy_pieces(lines, moves.line_count, moves.line_bytes, source, bytes);
  change_bytes(moves, bytes);
  const std::int64_t count = moves.buffer_bytes / 8;
  for (std::int64_t i = 0; i < moves.exchange_count; ++i) {
    const BitExchange exchange = moves.exchanges[i];
    passes[exchange.low](words, count, std::int64_t{1} << (exchange.high - word_log2));
  }
  copy_pieces(moves.chunks, moves.chunk_count, moves.chunk_bytes, bytes, out);
}

}  // namespace

void move_blocks_generic(const BlockMoves& moves, const BlockRun& run) {
  for (std::int64_t i = 0; i < run.count; ++i) {
    const BlockCopy* const lines = moves.lines + (run.own_lines ? i * moves.line_count : 0);
    move_block(moves, lines, run.source + run.blocks[i].from, run.out + run.blocks[i].to);
  }
}

void fence_blocks_generic() {}

BlockMover block_mover(IsaLevel level) {
#if defined(__x86_64__)
  if (level >= IsaLevel::avx512)
    return {.move = move_blocks_avx512,
            .fence = fence_blocks_avx512,
            .register_log2 = 9,
            .shuffles = true,
            .pairs = true,
            .reads_registers = true};
  if (level == IsaLevel::avx2)
    return {.move = move_blocks_avx2,
            .fence = fence_blocks_avx2,
            .register_log2 = 8,
            .shuffles = true,
            .pairs = false,
            .reads_registers = true};
#endif
  static_cast<void>(level);
  return {.move = move_blocks_generic,
          .fence = fence_blocks_generic,
          .register_log2 = word_log2,
          .shuffles = false,
          .pairs = false,
          .reads_registers = false};
}

}  // namespace fewbit
