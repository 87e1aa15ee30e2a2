// SPDX-License-Identifier: Apache-2.0
// The body of move_blocks for registers of any width. Included within a region of an instruction
// set, whose intrinsics L wraps:
//
//   Register, log2 (of its bits), whole_lines (a register is a line of the caches)
//   load, store, stream (whole registers; stream past the caches, aligned)
//   Exchange, make_exchange(moves, i)  the i-th exchange of a plan
//   exchange_bits, exchange_bytes      does it: within bytes, of whole ones
//   shuffle(x, indexes)      byte i of the result is byte indexes[i] of x
//   Nibbles, Bytes           tables, made from a BlockMoves; change(table, x)
#pragma once

#include <cstdint>
#include <cstring>

#include "layout/pack_fast_blocks.hpp"

namespace fewbit {
namespace {

template <class L>
struct BlockLanes {
  using Register = typename L::Register;
  static constexpr std::int64_t register_bytes = std::int64_t{1} << (L::log2 - 3);
  static constexpr std::int64_t line_bytes = 64;

  // Where a pass reads and writes its registers: one inside the buffer, or, as the first and the
  // last one, in the source and in the result; in_patches: what is fetched for later has places of
  // its own.
  enum class Ends { inside, outside, in_patches };
  struct Places {
    const std::uint8_t* from;
    const std::int64_t* from_of;  // of each register; null: in order, in the buffer
    std::uint8_t* to;
    const std::int64_t* to_of;  // the same
    std::int64_t ahead;         // bytes to the source of a block soon after, or
    const std::uint8_t* fetch;  // in patches: what is read later, for each register
    const std::int64_t* fetch_of;
    const std::uint8_t* shuffling;  // null: none
    bool stream;
  };

  // Lines are more streams than the hardware follows.
  __attribute__((always_inline)) static inline void fetch(const std::uint8_t* at) {
    _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0);
  }

  // What becomes of registers that are loaded from the source.
  struct Unchanged {
    explicit inline Unchanged(const BlockMoves& /*moves*/) {}
  };
  static inline Register change(const Unchanged& /*table*/, Register x) { return x; }
  template <class Table>
  static inline Register change(const Table& table, Register x) {
    return L::change(table, x);
  }

  template <Ends ends, class Table>
  __attribute__((always_inline)) static inline Register load(const Places& p, const Table& table,
                                                             std::int64_t r) {
    if (ends == Ends::inside || p.from_of == nullptr) return L::load(p.from + r * register_bytes);
    const std::uint8_t* const at = p.from + p.from_of[r];
    if constexpr (ends == Ends::in_patches) {
      fetch(p.fetch + p.fetch_of[r]);
    } else {
      fetch(at + p.ahead);
    }
    return change(table, L::load(at));
  }

  // Past the caches, where whole lines would push out the source, unless they are read soon.
  __attribute__((always_inline)) static inline void put(std::uint8_t* at, Register x, bool stream) {
    if (stream && reinterpret_cast<std::uintptr_t>(at) % register_bytes == 0) {
      L::stream(at, x);
    } else {
      L::store(at, x);
    }
  }

  template <Ends ends>
  __attribute__((always_inline)) static inline void store(const Places& p, std::int64_t r,
                                                          Register x) {
    if constexpr (ends != Ends::inside) {
      if (p.shuffling != nullptr) x = L::shuffle(x, L::load(p.shuffling));
      if (p.to_of != nullptr) return put(p.to + p.to_of[r], x, p.stream);
    }
    L::store(p.to + r * register_bytes, x);
  }

  // Exchanges while their registers are loaded: two, four or eight of them.
  static constexpr int most_exchanges = 3;
  struct Pass {
    typename L::Exchange exchanges[most_exchanges];
    std::int64_t distances[most_exchanges];
    int count;
    bool within_bytes;  // the first one
  };

  template <Ends ends, bool within_bytes, int count, class Table>
  static void run_pass_of(const Pass& pass, const Places& places, const Table& tables,
                          std::int64_t registers) {
    // Copies, which the bytes that are written can't be part of.
    const Places p = places;
    const Table table = tables;
    typename L::Exchange exchange[count];
    std::int64_t distance[count];
    std::int64_t apart = 0;
    for (int i = 0; i < count; ++i) {
      exchange[i] = pass.exchanges[i];
      distance[i] = pass.distances[i];
      apart |= distance[i];
    }
    for (std::int64_t r = 0; r < registers; r = ((r | apart) + 1) & ~apart) {
      std::int64_t at[1 << count];
      Register x[1 << count];
#pragma GCC unroll 8
      for (int i = 0; i < 1 << count; ++i) {
        at[i] = r;
        for (int e = 0; e < count; ++e) at[i] += (i >> e & 1) * distance[e];
      }
#pragma GCC unroll 8
      for (int i = 0; i < 1 << count; ++i) x[i] = load<ends>(p, table, at[i]);
#pragma GCC unroll 3
      for (int e = 0; e < count; ++e) {
#pragma GCC unroll 8
        for (int i = 0; i < 1 << count; ++i) {
          if ((i >> e & 1) != 0) continue;
          if (within_bytes && e == 0) {
            L::exchange_bits(exchange[e], x[i], x[i + (1 << e)]);
          } else {
            L::exchange_bytes(exchange[e], x[i], x[i + (1 << e)]);
          }
        }
      }
#pragma GCC unroll 8
      for (int i = 0; i < 1 << count; ++i) store<ends>(p, at[i], x[i]);
    }
  }

  template <Ends ends, class Table>
  static void run_pass(const Pass& pass, const Places& p, const Table& table,
                       std::int64_t registers) {
    if (pass.within_bytes) {
      if (pass.count == 1) return run_pass_of<ends, true, 1>(pass, p, table, registers);
      if (pass.count == 2) return run_pass_of<ends, true, 2>(pass, p, table, registers);
      return run_pass_of<ends, true, 3>(pass, p, table, registers);
    }
    if (pass.count == 1) return run_pass_of<ends, false, 1>(pass, p, table, registers);
    if (pass.count == 2) return run_pass_of<ends, false, 2>(pass, p, table, registers);
    return run_pass_of<ends, false, 3>(pass, p, table, registers);
  }

  // All passes of a plan. An exchange within bytes begins one, and the registers of a pass are
  // apart by different distances.
  struct Passes {
    Pass all[most_block_exchanges];
    std::int64_t count = 0;
    explicit Passes(const BlockMoves& moves) {
      std::int64_t apart = 0;
      for (std::int64_t i = 0; i < moves.exchange_count; ++i) {
        const BitExchange e = moves.exchanges[i];
        const std::int64_t distance = std::int64_t{1} << (e.high - L::log2);
        const bool within_bytes = e.low < 3;
        if (count == 0 || within_bytes || (apart & distance) != 0 ||
            all[count - 1].count == most_exchanges) {
          all[count].count = 0;
          all[count].within_bytes = within_bytes;
          ++count;
          apart = 0;
        }
        Pass& pass = all[count - 1];
        pass.exchanges[pass.count] = L::make_exchange(moves, i);
        pass.distances[pass.count] = distance;
        ++pass.count;
        apart |= distance;
      }
    }
  };

  // Of blocks whose registers only shuffle their bytes.
  template <Ends ends, class Table>
  static void shuffle_alone(const Places& p, const Table& table, std::int64_t registers) {
    for (std::int64_t r = 0; r < registers; ++r) store<ends>(p, r, load<ends>(p, table, r));
  }

  // The first pass, which is the last one where a plan has no exchanges.
  template <Ends ends, class Table>
  static void begin(const Passes& passes, const Places& p, const Table& table,
                    std::int64_t registers) {
    if (passes.count == 0) return shuffle_alone<ends>(p, table, registers);
    run_pass<ends>(passes.all[0], p, table, registers);
  }

  struct Block {
    const BlockCopy* lines;
    const std::int64_t* register_from;
    const std::uint8_t* source;
    std::uint8_t* out;
    std::int64_t ahead;         // bytes to the source of a block soon after
    const std::uint8_t* fetch;  // what is read later instead, for each register; or null
    const std::int64_t* fetch_of;
  };

  // What is read soon, with the bytes of the source that go to such a byte of the buffer.
  template <bool in_patches>
  __attribute__((always_inline)) static inline void fetch_with(const Block& block,
                                                               std::int64_t from, std::int64_t to) {
    if constexpr (in_patches) {
      if (to % register_bytes == 0) fetch(block.fetch + block.fetch_of[to / register_bytes]);
    } else {
      fetch(block.source + from + block.ahead);
    }
  }

  template <std::int64_t bytes, bool in_patches>
  static void read_lines_of(const BlockMoves& moves, const Block& all, std::uint8_t* buffer) {
    const Block block = all;  // a copy, which the bytes that are written can't be part of
    const std::int64_t count = moves.line_count;
    for (std::int64_t i = 0; i < count; ++i) {
      const BlockCopy line = block.lines[i];
      fetch_with<in_patches>(block, line.from, line.to);
      std::memcpy(buffer + line.to, block.source + line.from, bytes);
    }
  }

  template <std::int64_t bytes>
  static void read_lines(const BlockMoves& moves, const Block& block, std::uint8_t* buffer) {
    block.fetch != nullptr ? read_lines_of<bytes, true>(moves, block, buffer)
                           : read_lines_of<bytes, false>(moves, block, buffer);
  }

  template <bool in_patches>
  static void read_long_lines(const BlockMoves& moves, const Block& all, std::uint8_t* buffer) {
    const Block block = all;
    for (std::int64_t i = 0; i < moves.line_count; ++i) {
      const std::uint8_t* const from = block.source + block.lines[i].from;
      std::uint8_t* const to = buffer + block.lines[i].to;
      for (std::int64_t at = 0; at < moves.line_bytes; at += line_bytes) {
        fetch_with<in_patches>(block, block.lines[i].from + at, block.lines[i].to + at);
        std::memcpy(to + at, from + at, line_bytes);
      }
    }
  }

  static void read_source(const BlockMoves& moves, const Block& block, std::uint8_t* buffer) {
    switch (moves.line_bytes) {
      case 4:
        return read_lines<4>(moves, block, buffer);
      case 8:
        return read_lines<8>(moves, block, buffer);
      case 16:
        return read_lines<16>(moves, block, buffer);
      case 32:
        return read_lines<32>(moves, block, buffer);
      default:
        return block.fetch != nullptr ? read_long_lines<true>(moves, block, buffer)
                                      : read_long_lines<false>(moves, block, buffer);
    }
  }

  template <std::int64_t bytes>
  static void write_chunks(const BlockMoves& moves, const std::uint8_t* buffer, std::uint8_t* out) {
    for (std::int64_t i = 0; i < moves.chunk_count; ++i) {
      std::memcpy(out + moves.chunks[i].to, buffer + moves.chunks[i].from, bytes);
    }
  }

  // Chunks rise in the result, so those of a line follow each other.
  static void write_registers(const BlockMoves& moves, const std::uint8_t* buffer,
                              std::uint8_t* out) {
    for (std::int64_t i = 0; i < moves.chunk_count; ++i) {
      std::uint8_t* const to = out + moves.chunks[i].to;
      const std::uint8_t* const from = buffer + moves.chunks[i].from;
      for (std::int64_t at = 0; at < moves.chunk_bytes; at += register_bytes) {
        put(to + at, L::load(from + at), moves.stream);
      }
    }
  }

  static void write_out(const BlockMoves& moves, const std::uint8_t* buffer, std::uint8_t* out) {
    if (moves.chunk_bytes >= register_bytes) return write_registers(moves, buffer, out);
    switch (moves.chunk_bytes) {
      case 4:
        return write_chunks<4>(moves, buffer, out);
      case 8:
        return write_chunks<8>(moves, buffer, out);
      case 16:
        return write_chunks<16>(moves, buffer, out);
      default:
        return write_chunks<32>(moves, buffer, out);
    }
  }

  template <class Table>
  static void change_all(const Table& table, std::uint8_t* buffer, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; at += register_bytes) {
      L::store(buffer + at, change(table, L::load(buffer + at)));
    }
  }

  template <class Table>
  static void move_block(const BlockMoves& moves, const Passes& passes, const Table& table,
                         const Block& block, std::uint8_t* buffer) {
    const std::int64_t registers = moves.buffer_bytes / register_bytes;
    const bool any = passes.count > 0 || moves.shuffle != nullptr;
    const bool from_source = block.register_from != nullptr;
    const bool to_out = moves.register_to != nullptr && L::whole_lines && any;
    if (!from_source) {
      read_source(moves, block, buffer);
      change_all(table, buffer, moves.buffer_bytes);
    }
    Places p{.from = from_source ? block.source : buffer,
             .from_of = from_source ? block.register_from : nullptr,
             .to = buffer,
             .to_of = nullptr,
             .ahead = block.ahead,
             .fetch = block.fetch,
             .fetch_of = block.fetch_of,
             .shuffling = nullptr,
             .stream = moves.stream};
    for (std::int64_t i = 0; any && (i == 0 || i < passes.count); ++i) {
      const bool last = i + 1 >= passes.count;
      if (last && to_out) {
        p.to = block.out;
        p.to_of = moves.register_to;
      }
      if (last) p.shuffling = moves.shuffle;
      if (p.from_of != nullptr && block.fetch != nullptr) {
        begin<Ends::in_patches>(passes, p, table, registers);
      } else if (p.from_of != nullptr || passes.count == 0) {
        begin<Ends::outside>(passes, p, table, registers);
      } else if (p.to_of != nullptr || p.shuffling != nullptr) {
        run_pass<Ends::outside>(passes.all[i], p, Unchanged(moves), registers);
      } else {
        run_pass<Ends::inside>(passes.all[i], p, Unchanged(moves), registers);
      }
      p.from = buffer;
      p.from_of = nullptr;
    }
    if (!to_out) write_out(moves, buffer, block.out);
  }

  template <class Table>
  static void move_all(const BlockMoves& moves, const BlockRun& run) {
    alignas(64) std::uint8_t buffer[block_buffer_bytes];
    const Passes passes(moves);
    const Table table(moves);
    // Far enough for memory, and near enough for lines a page apart, which share a few sets of the
    // cache.
    const std::int64_t small = line_bytes * 32 / moves.buffer_bytes;
    const std::int64_t soon = small > 0 ? small : 1;
    const std::int64_t registers = moves.buffer_bytes / register_bytes;
    Block block{.lines = moves.lines,
                .register_from = moves.register_from,
                .source = nullptr,
                .out = nullptr,
                .ahead = 0,
                .fetch = nullptr,
                .fetch_of = nullptr};
    for (std::int64_t i = 0; i < run.count; ++i) {
      const BlockCopy at = run.blocks[i];
      block.source = run.source + at.from;
      block.out = run.out + at.to;
      block.ahead = run.blocks[i + soon < run.count ? i + soon : i].from - at.from;
      if (run.later != nullptr) {
        block.fetch = run.source + run.later[i].from;
        block.fetch_of = moves.later + run.later[i].part * registers;
      }
      move_block(moves, passes, table, block, buffer);
      if (!run.own_lines) continue;
      block.lines += moves.line_count;
      if (block.register_from != nullptr) block.register_from += registers;
    }
  }

  static void move_blocks(const BlockMoves& moves, const BlockRun& run) {
    if (moves.bytes != nullptr) return move_all<typename L::Bytes>(moves, run);
    if (moves.nibbles != nullptr) return move_all<typename L::Nibbles>(moves, run);
    move_all<Unchanged>(moves, run);
  }
};

}  // namespace
}  // namespace fewbit
