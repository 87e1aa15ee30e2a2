// SPDX-License-Identifier: Apache-2.0
// Moves blocks of elements from one layout to another.
//
// Layouts are closed forms of the bits of n and k, so within a block of powers of two an element
// moves from one bit address to another by a permutation of the bits of the address. A block is
// copied into a buffer, line by line; there the permutation is a few exchanges of one address bit
// above a register with one inside, and one shuffle of the bytes within registers; then the buffer
// is copied to its places. Whichever the two layouts are, the plan (block_plan.hpp) is data, and an
// exchange is the same few instructions for two registers a and b:
//   a' = a where the inner bit is 0, b moved up by it where it is 1
//   b' = a moved down by it where it is 0, b where it is 1
// All variants give the same bytes.
#pragma once

#include <cstdint>

#include "fewbit/selection.hpp"

namespace fewbit {

struct BlockCopy {
  std::int64_t from;  // bytes
  std::int64_t to;
};

// Exchanges address bits, counted in bits (bit 3 tells odd bytes): low within a register, high
// above.
struct BitExchange {
  int high;
  int low;
};

struct BlockMoves {
  const BlockCopy* lines;  // from a block's first byte in the source to the buffer
  std::int64_t line_count;
  std::int64_t line_bytes;  // a power of two, at least 4
  const BitExchange* exchanges;
  std::int64_t exchange_count;
  // Movers with pairs: of each exchange of whole bytes, which byte of the two registers (those of b
  // follow those of a) each byte of the new a and of the new b is.
  const std::uint8_t* pairs;
  const std::uint8_t* shuffle;  // after these: which byte of a register each byte is; or null
  const BlockCopy* chunks;      // from the buffer to its first byte in the result, rising there
  std::int64_t chunk_count;
  std::int64_t chunk_bytes;   // a power of two, at least 4
  std::int64_t buffer_bytes;  // a power of two, at least 8
  // Of each register of the buffer: where its bytes lie in the source, and in the result. Null
  // where lines or chunks are shorter, and register_from where nothing is exchanged or shuffled.
  const std::int64_t* register_from;
  const std::int64_t* register_to;
  const std::int64_t* later;    // of each register of each part of what is read later; or null
  const std::uint8_t* nibbles;  // of 16: what becomes of each half of a byte, first; or null
  const std::uint8_t* bytes;    // of 256: what becomes of each byte, first; or null; one of these
  std::uint8_t first_byte;      // of those that there are
  std::uint8_t last_byte;
  bool stream;  // whole lines of the result go past the caches
};

// Source that is on its way into the second-level cache while a block is moved: that part of
// BlockMoves::later, from this byte on.
struct ReadAhead {
  std::int64_t from;
  std::int64_t part;
};

// Many blocks of one plan: from the source's first byte, to the result's.
struct BlockRun {
  const BlockCopy* blocks;
  const ReadAhead* later;  // of each block; null: what follows it soon is fetched
  std::int64_t count;
  bool own_lines;  // each block its own lines and register_from, after those of the one before
  const std::uint8_t* source;
  std::uint8_t* out;
};

inline constexpr std::int64_t block_buffer_bytes = 4096;
inline constexpr std::int64_t most_block_exchanges = 32;

// source and out need no alignment; exactly the lines are read and the chunks written.
using MoveBlocksFn = void(const BlockMoves& moves, const BlockRun& run);
MoveBlocksFn move_blocks_generic;  // takes no shuffle
MoveBlocksFn move_blocks_avx2;     // needs AVX2
MoveBlocksFn move_blocks_avx512;   // needs AVX-512 F, BW, VL, VBMI

// Streamed lines are in memory before anyone is told of them: after the last block.
using FenceBlocksFn = void();
FenceBlocksFn fence_blocks_generic;
FenceBlocksFn fence_blocks_avx2;
FenceBlocksFn fence_blocks_avx512;

// The variant of an ISA level of this machine.
struct BlockMover {
  MoveBlocksFn* move;
  FenceBlocksFn* fence;
  int register_log2;     // of its bits: address bits below are inside a register
  bool shuffles;         // the bytes of a register too
  bool pairs;            // exchanges whole bytes by a table
  bool reads_registers;  // by register_from, where that is there; else by lines
};
BlockMover block_mover(IsaLevel level);

}  // namespace fewbit
