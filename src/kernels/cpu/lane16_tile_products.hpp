// SPDX-License-Identifier: Apache-2.0
// Products of one chunk of a pair of blocks with up to two tiles of tokens, over any unit of tiles
// T (lane16_tile_loops.hpp). Included inside a target region with AVX-512, after
// lane16_tile_chunks.hpp, so it includes nothing itself.
#pragma once

#define FEWBIT_INLINE static inline __attribute__((always_inline))

// Up to two tiles of tokens, of as many rows.
struct TokenTiles {
  const std::uint16_t* x[2];
  std::int64_t line[2];    // values from 32 k to the next
  std::int64_t tokens[2];  // rows that are tokens
  float* y[2][2];          // of a tile by a column
  std::int64_t y_token;
  float* waiting;
};

// A tile of each block with the tiles of tokens. FILLS: what the next chunk has in their slot takes
// its place, the first block's before the second tokens, so that the unit has work meanwhile.
template <class T, class Fill, int TILES, int COLUMNS, bool FILLS>
FEWBIT_INLINE void multiply_tile(T& unit, const std::uint16_t* first, const std::uint16_t* second,
                                 int slot, Filler<Fill>* next, TileMemory& memory) {
  // In this order the unit waits least for operands from the second-level cache: 17.5 cycles a
  // product on a Xeon of the fifth generation, 19 with all four loaded first.
  unit.template operand<4>(first);
  unit.template operand<6>(memory.weights[0][slot]);
  unit.template dot<0, 4, 6>();
  if constexpr (COLUMNS == 2) {
    unit.template operand<7>(memory.weights[1][slot]);
    unit.template dot<1, 4, 7>();
  }
  if constexpr (FILLS) next[0].to(slot + 1);
  if constexpr (TILES == 2) {
    unit.template operand<5>(second);
    unit.template dot<2, 5, 6>();
    if constexpr (COLUMNS == 2) unit.template dot<3, 5, 7>();
  }
  if constexpr (FILLS && COLUMNS == 2) next[1].to(slot + 1);
}

template <class T, int TILES, int COLUMNS>
FEWBIT_INLINE void zero_sums(T& unit) {
  unit.template zero<0>();
  if constexpr (COLUMNS == 2) unit.template zero<1>();
  if constexpr (TILES == 2) unit.template zero<2>();
  if constexpr (TILES == 2 && COLUMNS == 2) unit.template zero<3>();
}
template <class T, int TILES, int COLUMNS>
FEWBIT_INLINE void load_sums(T& unit, const float* sums) {
  unit.template load<0>(sums, 64);
  if constexpr (COLUMNS == 2) unit.template load<1>(sums + 256, 64);
  if constexpr (TILES == 2) unit.template load<2>(sums + 512, 64);
  if constexpr (TILES == 2 && COLUMNS == 2) unit.template load<3>(sums + 768, 64);
}
template <class T, int TILES, int COLUMNS>
FEWBIT_INLINE void store_sums(T& unit, float* sums) {
  unit.template store<0>(sums, 64);
  if constexpr (COLUMNS == 2) unit.template store<1>(sums + 256, 64);
  if constexpr (TILES == 2) unit.template store<2>(sums + 512, 64);
  if constexpr (TILES == 2 && COLUMNS == 2) unit.template store<3>(sums + 768, 64);
}

// One tile of sums: y = scale * sums, or y += scale * sums.
FEWBIT_INLINE void scale_tile(__m512 scale, const float* sums, bool first, std::int64_t tokens,
                              std::int64_t y_token, float* y) {
  if (first) {
#pragma GCC unroll 4
    for (std::int64_t t = 0; t < tokens; ++t, y += y_token)
      _mm512_store_ps(y, _mm512_mul_ps(scale, _mm512_load_ps(sums + t * 16)));
  } else {
#pragma GCC unroll 4
    for (std::int64_t t = 0; t < tokens; ++t, y += y_token)
      _mm512_store_ps(y, _mm512_fmadd_ps(scale, _mm512_load_ps(sums + t * 16), _mm512_load_ps(y)));
  }
}

// What stays the same while a pair of blocks is multiplied.
template <class Fill>
struct Pair {
  Lane16Blocks blocks[2];
  Fill fill[2];
  float* y[2];
};

// Scales of a span's rows.
template <class K, class Fill>
FEWBIT_INLINE __m512 span_scale(const Pair<Fill>& pair, int column, const Span& span) {
  const Lane16Blocks& block = pair.blocks[column];
  if constexpr (Fill::in_weights) return _mm512_set1_ps(block.global_scale);
  const std::int64_t group_cells = cells_of_group<K>(block);
  return group_scale<Avx512, K>(block, pair.fill[column].at, span.first_cell / group_cells);
}

// Where the sums of one chunk stand before the next.
enum class Sums { none, in_tiles, waiting, done };
struct Passage {
  Sums before;
  Sums after;
};

// A chunk of one span. FILLS: the next chunk becomes tiles.
template <class T, class K, class Fill, int TILES, int COLUMNS, bool FILLS>
void multiply_whole(T& unit, const Pair<Fill>& pair, const Chunk& chunk, const Passage& passage,
                    const TokenTiles& tokens, Filler<Fill>* next, TileMemory& memory) {
  if (passage.before == Sums::none)
    zero_sums<T, TILES, COLUMNS>(unit);
  else if (passage.before == Sums::waiting)
    load_sums<T, TILES, COLUMNS>(unit, tokens.waiting);
  const Span& span = chunk.spans[0];
  const std::uint16_t* first = tokens.x[0] + span.first_tile() * tokens.line[0];
  const std::uint16_t* second = tokens.x[1] + span.first_tile() * tokens.line[1];
  const int tiles = chunk.tiles;
  for (int i = 0; i < tiles; ++i, first += tokens.line[0], second += tokens.line[1]) {
    multiply_tile<T, Fill, TILES, COLUMNS, FILLS>(unit, first, second, i, next, memory);
  }
  if (passage.after == Sums::waiting) store_sums<T, TILES, COLUMNS>(unit, tokens.waiting);
  if (passage.after != Sums::done) return;
  store_sums<T, TILES, COLUMNS>(unit, memory.sums[0][0]);
#pragma GCC unroll 2
  for (int c = 0; c < COLUMNS; ++c) {
    const __m512 scale = span_scale<K>(pair, c, span);
#pragma GCC unroll 2
    for (int tile = 0; tile < TILES; ++tile)
      scale_tile(scale, memory.sums[0][tile * 2 + c], true, tokens.tokens[tile], tokens.y_token,
                 tokens.y[tile][c]);
  }
}

// A chunk of groups, each with a sum of its own, which is scaled beside the products of the next.
template <class T, class K, class Fill, int TILES, int COLUMNS, bool FILLS>
void multiply_groups(T& unit, const Pair<Fill>& pair, const Chunk& chunk, const TokenTiles& tokens,
                     Filler<Fill>* next, TileMemory& memory) {
  constexpr int parts = TILES * COLUMNS;
  const bool begins = chunk.spans[0].first_cell == 0;
  int slot = 0;
  for (int s = 0; s <= chunk.count; ++s) {
    __m512 scale[COLUMNS];
    if (s > 0) {
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; ++c) scale[c] = span_scale<K>(pair, c, chunk.spans[s - 1]);
    }
    int part = s > 0 ? 0 : parts;
    const auto& sums = memory.sums[(s + 1) % 2];
    if (s < chunk.count) {
      zero_sums<T, TILES, COLUMNS>(unit);
      const Span& span = chunk.spans[s];
      const int tiles = span.tiles();
      const std::uint16_t* first = tokens.x[0] + span.first_tile() * tokens.line[0];
      const std::uint16_t* second = tokens.x[1] + span.first_tile() * tokens.line[1];
      for (int i = 0; i < tiles; ++i, first += tokens.line[0], second += tokens.line[1]) {
        multiply_tile<T, Fill, TILES, COLUMNS, FILLS>(unit, first, second, slot++, next, memory);
        for (; part * tiles < (i + 1) * parts; ++part)
          scale_tile(scale[part % COLUMNS], sums[part / COLUMNS * 2 + part % COLUMNS],
                     begins && s == 1, tokens.tokens[part / COLUMNS], tokens.y_token,
                     tokens.y[part / COLUMNS][part % COLUMNS]);
      }
      store_sums<T, TILES, COLUMNS>(unit, memory.sums[s % 2][0]);
    }
    for (; part < parts; ++part)
      scale_tile(scale[part % COLUMNS], sums[part / COLUMNS * 2 + part % COLUMNS], begins && s == 1,
                 tokens.tokens[part / COLUMNS], tokens.y_token,
                 tokens.y[part / COLUMNS][part % COLUMNS]);
  }
}

// The products of one group in tile C, by the tiles in `slot` and on, and their sums in memory.
template <class T, int C>
FEWBIT_INLINE void multiply_group(T& unit, const std::uint16_t* x, std::int64_t line,
                                  const std::uint16_t (*weights)[512], int tiles,
                                  TileMemory& memory) {
  unit.template zero<C>();
  for (int i = 0; i < tiles; ++i, x += line) {
    unit.template operand<4 + C / 2>(x);
    unit.template operand<6 + C % 2>(weights[i]);
    unit.template dot<C, 4 + C / 2, 6 + C % 2>();
  }
  unit.template store<C>(memory.sums[0][C], 64);
}

// The same of groups of a tile or two, whose sums come too often for a way through memory: of one
// block and one tile of tokens, and of a full one in registers.
template <class T, class K, class Fill, bool FULL, bool FILLS>
void multiply_short_groups(T& unit, const Pair<Fill>& pair, int column, const Chunk& chunk,
                           const TokenTiles& tokens, int tile, Filler<Fill>& next,
                           TileMemory& memory) {
  const std::int64_t token = tokens.y_token;
  const std::int64_t line = tokens.line[tile];
  float* const y = tokens.y[tile][column];
  const bool begins = chunk.spans[0].first_cell == 0;
  __m512 sums[16];
  if (FULL && !begins) {
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) sums[t] = _mm512_load_ps(y + t * token);
  }
  int slot = 0;
  for (int s = 0; s < chunk.count; ++s) {
    const Span& span = chunk.spans[s];
    const std::uint16_t* x = tokens.x[tile] + span.first_tile() * line;
    const auto* weights = memory.weights[column] + slot;
    // By turns, so that a group's products need not wait for the stores of the one before.
    if (s % 4 == 0)
      multiply_group<T, 0>(unit, x, line, weights, span.tiles(), memory);
    else if (s % 4 == 1)
      multiply_group<T, 3>(unit, x, line, weights, span.tiles(), memory);
    else if (s % 4 == 2)
      multiply_group<T, 1>(unit, x, line, weights, span.tiles(), memory);
    else
      multiply_group<T, 2>(unit, x, line, weights, span.tiles(), memory);
    const float* group = memory.sums[0][s % 4 == 0 ? 0 : s % 4 == 1 ? 3 : s % 4 - 1];
    slot += span.tiles();
    if constexpr (FILLS) next.to(slot);
    const __m512 scale = span_scale<K>(pair, column, span);
    const bool first = begins && s == 0;
    if constexpr (FULL) {
      if (first) {
#pragma GCC unroll 16
        for (int t = 0; t < 16; ++t) sums[t] = _mm512_mul_ps(scale, _mm512_load_ps(group + t * 16));
      } else {
#pragma GCC unroll 16
        for (int t = 0; t < 16; ++t)
          sums[t] = _mm512_fmadd_ps(scale, _mm512_load_ps(group + t * 16), sums[t]);
      }
    } else {
      scale_tile(scale, group, first, tokens.tokens[tile], token, y);
    }
  }
  if constexpr (FULL) {
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) _mm512_store_ps(y + t * token, sums[t]);
  }
}

template <class T, class K, class Fill, int TILES, int COLUMNS, bool FILLS>
FEWBIT_INLINE void multiply_short(T& unit, const Pair<Fill>& pair, const Chunk& chunk,
                                  const TokenTiles& tokens, Filler<Fill>* next,
                                  TileMemory& memory) {
  for (int c = 0; c < COLUMNS; ++c) {
    for (int tile = 0; tile < TILES; ++tile) {
      const bool full = tokens.tokens[tile] == tile_tokens;
      if (FILLS && tile == TILES - 1) {
        if (full)
          multiply_short_groups<T, K, Fill, true, true>(unit, pair, c, chunk, tokens, tile, next[c],
                                                        memory);
        else
          multiply_short_groups<T, K, Fill, false, true>(unit, pair, c, chunk, tokens, tile,
                                                         next[c], memory);
      } else if (full) {
        multiply_short_groups<T, K, Fill, true, false>(unit, pair, c, chunk, tokens, tile, next[c],
                                                       memory);
      } else {
        multiply_short_groups<T, K, Fill, false, false>(unit, pair, c, chunk, tokens, tile, next[c],
                                                        memory);
      }
    }
  }
}

#undef FEWBIT_INLINE
