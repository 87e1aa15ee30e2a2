// SPDX-License-Identifier: Apache-2.0
// The loops of lane16_tiles over any unit of tiles T and any fill. Included inside a target region
// with AVX-512, after lane16_tile_fills.hpp, so it includes nothing itself. T, one a run:
//
//   rows(first, second)    from now on the tiles of the first and second 16 tokens have so many
//                          rows; where that is new, all tiles are cleared
//   release()              gives the unit back
//   zero<C>()              C: 0, 1 the first tokens by the left and right block, 2, 3 the second
//   load<C>, store<C>(memory, bytes from a row to the next)
//   operand<A>(memory)     A: 4, 5 the first and second tokens (rows of 64 bytes), 6, 7 left and
//                          right
//   dot<C, A, B>()         C += A B
#pragma once

#define FEWBIT_INLINE static inline __attribute__((always_inline))

// Tiles of weights that stand in the first-level cache at a time, of each block.
constexpr int chunk_tiles = 16;

// Codes that are multiplied before their sum is scaled: all, or those of a group or of a part of
// it.
struct Span {
  std::int64_t first_cell;
  std::int64_t end_cell;
  bool opens;   // begins at zero
  bool closes;  // its sum is scaled
  std::int64_t first_tile() const { return first_cell / 2; }
  int tiles() const { return static_cast<int>((end_cell + 1) / 2 - first_cell / 2); }
};
struct Chunk {
  Span spans[chunk_tiles];
  int count;
  std::int64_t end_cell;
};

// What of k is read next: as many spans as fill the tiles of a chunk. group_cells 0: one span over
// all, which goes over chunks.
FEWBIT_INLINE void next_chunk(std::int64_t first, std::int64_t all, std::int64_t group_cells,
                              Chunk& chunk) {
  chunk.count = 0;
  if (group_cells == 0) {
    const std::int64_t left = all - first;
    chunk.end_cell = left < 2 * chunk_tiles ? all : first + 2 * chunk_tiles;
    chunk.spans[chunk.count++] = {first, chunk.end_cell, first == 0, chunk.end_cell == all};
    return;
  }
  int used = 0;
  std::int64_t cell = first;
  while (cell < all) {
    std::int64_t end = (cell / group_cells + 1) * group_cells;
    end = end < all ? end : all;
    // From an odd cell on, 2 * chunk_tiles - 1 fill the tiles.
    const std::int64_t most = cell / 2 * 2 + 2 * chunk_tiles;
    end = end < most ? end : most;
    const Span span{cell, end, true, true};
    if (used + span.tiles() > chunk_tiles) break;
    used += span.tiles();
    chunk.spans[chunk.count++] = span;
    cell = end;
  }
  chunk.end_cell = cell;
}

// Where the codes of the next pair follow those of a block that ends.
struct Ahead {
  std::int64_t distance;
  std::int64_t block_bytes;
  std::int64_t skip;
};

struct TileMemory {
  alignas(64) std::uint16_t weights[2][chunk_tiles][512];
  alignas(64) float sums[4][256];
};

template <class Fill>
FEWBIT_INLINE void fill_whole(const Fill& fill, std::int64_t cell, std::uint16_t* lines) {
  if constexpr (requires { fill.tile(cell, lines); }) {
    fill.tile(cell, lines);
  } else {
    fill.cell(cell, lines);
    fill.cell(cell + 1, lines + 256);
  }
}

// One tile of each block, from two cells; cells outside the span are zero.
template <class Fill, int COLUMNS>
FEWBIT_INLINE void fill_tiles(const Fill* fill, std::int64_t tile, const Span& span,
                              const Ahead& ahead, int slot, TileMemory& memory) {
#pragma GCC unroll 2
  for (int c = 0; c < COLUMNS; ++c) {
    std::uint16_t* lines = memory.weights[c][slot];
    const std::int64_t cell = tile * 2;
    if (cell >= span.first_cell && cell + 1 < span.end_cell) {
      fill_whole(fill[c], cell, lines);
    } else {
      for (int half = 0; half < 2; ++half) {
        if (cell + half >= span.first_cell && cell + half < span.end_cell) {
          fill[c].cell(cell + half, lines + half * 256);
        } else {
          for (int line = 0; line < 8; ++line)
            store_line(lines + half * 256, line, _mm512_setzero_si512());
        }
      }
    }
    const std::uint8_t* codes = fill[c].codes(tile * 2);
    const std::int64_t at = codes - fill[c].codes(0) + ahead.distance;
    const std::uint8_t* next = codes + ahead.distance + (at >= ahead.block_bytes ? ahead.skip : 0);
#pragma GCC unroll 8
    for (int line = 0; line < 2 * Fill::cell_bytes; line += 64) __builtin_prefetch(next + line);
  }
}

template <class T, int TILES, int COLUMNS>
FEWBIT_INLINE void multiply_tile(T& unit, const std::uint16_t* first, const std::uint16_t* second,
                                 int slot, const TileMemory& memory) {
  // In this order the unit waits least for operands from the second-level cache: 17.5 cycles a
  // product on a Xeon of the fifth generation, 19 with all four loaded first.
  unit.template operand<4>(first);
  unit.template operand<6>(memory.weights[0][slot]);
  unit.template dot<0, 4, 6>();
  if constexpr (COLUMNS == 2) {
    unit.template operand<7>(memory.weights[1][slot]);
    unit.template dot<1, 4, 7>();
  }
  if constexpr (TILES == 2) {
    unit.template operand<5>(second);
    unit.template dot<2, 5, 6>();
    if constexpr (COLUMNS == 2) unit.template dot<3, 5, 7>();
  }
}

template <class T, int TILES, int COLUMNS>
FEWBIT_INLINE void zero_sums(T& unit) {
  unit.template zero<0>();
  if constexpr (COLUMNS == 2) unit.template zero<1>();
  if constexpr (TILES == 2) unit.template zero<2>();
  if constexpr (TILES == 2 && COLUMNS == 2) unit.template zero<3>();
}

// Up to 32 tokens: theirs of both tiles, and where their results go by column.
struct TokenPair {
  const std::uint16_t* x[2];
  std::int64_t rows[2];
  float* y[2];
  std::int64_t y_token;
};
template <class T, int TILES, int COLUMNS, bool LOAD>
FEWBIT_INLINE void move_sums(T& unit, const TokenPair& to) {
  const std::int64_t bytes = to.y_token * 4;
  const std::int64_t second = tile_tokens * to.y_token;
  if constexpr (LOAD) {
    unit.template load<0>(to.y[0], bytes);
    if constexpr (COLUMNS == 2) unit.template load<1>(to.y[1], bytes);
    if constexpr (TILES == 2) unit.template load<2>(to.y[0] + second, bytes);
    if constexpr (TILES == 2 && COLUMNS == 2) unit.template load<3>(to.y[1] + second, bytes);
  } else {
    unit.template store<0>(to.y[0], bytes);
    if constexpr (COLUMNS == 2) unit.template store<1>(to.y[1], bytes);
    if constexpr (TILES == 2) unit.template store<2>(to.y[0] + second, bytes);
    if constexpr (TILES == 2 && COLUMNS == 2) unit.template store<3>(to.y[1] + second, bytes);
  }
}

// y = scale * sums, or y += scale * sums.
template <class T, int TILES, int COLUMNS>
FEWBIT_INLINE void scale_sums(T& unit, const __m512* scale, bool first, const TokenPair& to,
                              TileMemory& memory) {
  unit.template store<0>(memory.sums[0], 64);
  if constexpr (COLUMNS == 2) unit.template store<1>(memory.sums[1], 64);
  if constexpr (TILES == 2) unit.template store<2>(memory.sums[2], 64);
  if constexpr (TILES == 2 && COLUMNS == 2) unit.template store<3>(memory.sums[3], 64);
#pragma GCC unroll 2
  for (int tile = 0; tile < TILES; ++tile) {
#pragma GCC unroll 2
    for (int c = 0; c < COLUMNS; ++c) {
      const float* sums = memory.sums[tile * 2 + c];
      float* y = to.y[c] + tile * tile_tokens * to.y_token;
      if (first) {
        for (std::int64_t t = 0; t < to.rows[tile]; ++t, y += to.y_token)
          _mm512_store_ps(y, _mm512_mul_ps(scale[c], _mm512_load_ps(sums + t * 16)));
      } else {
        for (std::int64_t t = 0; t < to.rows[tile]; ++t, y += to.y_token)
          _mm512_store_ps(
              y, _mm512_fmadd_ps(scale[c], _mm512_load_ps(sums + t * 16), _mm512_load_ps(y)));
      }
    }
  }
}

// Scales of a span's rows.
template <class K, class Fill>
FEWBIT_INLINE __m512 span_scale(const Lane16Blocks& block, const Fill& fill, const Span& span) {
  if constexpr (Fill::in_weights) return _mm512_set1_ps(block.global_scale);
  const std::int64_t group_cells = K::fixed_cells != 0 ? K::fixed_cells : block.group / 16;
  return group_scale<Avx512, K>(block, fill.at, span.first_cell / group_cells);
}

// What stays the same while a pair of blocks is multiplied.
template <class Fill>
struct Pair {
  const Lane16Blocks* blocks[2];
  Fill fill[2];
  Ahead ahead;
  bool kept;  // sums stay in the tiles from a chunk to the next
};

// A chunk of a pair times up to 32 tokens. FILLS: the first tokens of a chunk make its tiles.
template <class T, class K, class Fill, int TILES, int COLUMNS, bool FILLS>
void multiply_chunk(T& unit, const Pair<Fill>& pair, const Chunk& chunk, const TokenPair& tokens,
                    TileMemory& memory) {
  const std::int64_t line = tokens.rows[0] * tile_k;
  const std::int64_t second_line = tokens.rows[1] * tile_k;
  int slot = 0;
  for (int s = 0; s < chunk.count; ++s) {
    const Span& span = chunk.spans[s];
    const std::int64_t tile = span.first_tile();
    const int tiles = span.tiles();
    if (span.opens)
      zero_sums<T, TILES, COLUMNS>(unit);
    else if (!pair.kept)
      move_sums<T, TILES, COLUMNS, true>(unit, tokens);
    const std::uint16_t* first = tokens.x[0] + tile * line;
    const std::uint16_t* second = tokens.x[1] + tile * second_line;
    if constexpr (FILLS) fill_tiles<Fill, COLUMNS>(pair.fill, tile, span, pair.ahead, slot, memory);
    for (int i = 0; i < tiles; ++i, ++slot, first += line, second += second_line) {
      // One ahead of its products, so that both go on side by side.
      if constexpr (FILLS) {
        if (i + 1 < tiles)
          fill_tiles<Fill, COLUMNS>(pair.fill, tile + i + 1, span, pair.ahead, slot + 1, memory);
      }
      multiply_tile<T, TILES, COLUMNS>(unit, first, second, slot, memory);
    }
    if (span.closes) {
      __m512 scale[COLUMNS];
#pragma GCC unroll 2
      for (int c = 0; c < COLUMNS; ++c)
        scale[c] = span_scale<K>(*pair.blocks[c], pair.fill[c], span);
      const bool only = span.first_cell == 0 || !span.opens;
      scale_sums<T, TILES, COLUMNS>(unit, scale, only, tokens, memory);
    } else if (!pair.kept) {
      move_sums<T, TILES, COLUMNS, false>(unit, tokens);
    }
  }
}

// The products of one group in tile C, by the tiles in `slot` and on, and their sums in memory.
template <class T, int C>
FEWBIT_INLINE void multiply_group(T& unit, const std::uint16_t* x, std::int64_t line, int column,
                                  int slot, int tiles, TileMemory& memory) {
  unit.template zero<C>();
  for (int i = 0; i < tiles; ++i, x += line) {
    unit.template operand<4 + C / 2>(x);
    unit.template operand<6 + C % 2>(memory.weights[column][slot + i]);
    unit.template dot<C, 4 + C / 2, 6 + C % 2>();
  }
  unit.template store<C>(memory.sums[C], 64);
}

// TILE: the first or second 16 tokens. A block whose groups are scaled; of full tiles the sums stay
// in registers for the chunk.
template <class T, class K, class Fill, int TILE, bool FULL>
void multiply_groups(T& unit, const Pair<Fill>& pair, int column, const Chunk& chunk,
                     const TokenPair& tokens, TileMemory& memory) {
  const std::int64_t token = tokens.y_token;
  const std::int64_t line = tokens.rows[TILE] * tile_k;
  float* const y = tokens.y[column] + TILE * tile_tokens * token;
  const bool begins = chunk.spans[0].first_cell == 0;
  __m512 sums[16];
  if (FULL && !begins) {
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) sums[t] = _mm512_load_ps(y + t * token);
  }
  int slot = 0;
  for (int s = 0; s < chunk.count; ++s) {
    const Span& span = chunk.spans[s];
    const std::uint16_t* x = tokens.x[TILE] + span.first_tile() * line;
    // By turns, so that a group's products need not wait for the stores of the one before.
    if (s % 2 == 0)
      multiply_group<T, TILE * 2>(unit, x, line, column, slot, span.tiles(), memory);
    else
      multiply_group<T, TILE * 2 + 1>(unit, x, line, column, slot, span.tiles(), memory);
    slot += span.tiles();
    const __m512 scale = span_scale<K>(*pair.blocks[column], pair.fill[column], span);
    const float* group = memory.sums[TILE * 2 + s % 2];
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
      for (std::int64_t t = 0; t < tokens.rows[TILE]; ++t) {
        const __m512 sum = _mm512_load_ps(group + t * 16);
        float* to = y + t * token;
        _mm512_store_ps(to, first ? _mm512_mul_ps(scale, sum)
                                  : _mm512_fmadd_ps(scale, sum, _mm512_load_ps(to)));
      }
    }
  }
  if constexpr (FULL) {
#pragma GCC unroll 16
    for (int t = 0; t < 16; ++t) _mm512_store_ps(y + t * token, sums[t]);
  }
}

template <class Fill, int COLUMNS>
void fill_chunk(const Pair<Fill>& pair, const Chunk& chunk, TileMemory& memory) {
  int slot = 0;
  for (int s = 0; s < chunk.count; ++s)
    for (int i = 0; i < chunk.spans[s].tiles(); ++i, ++slot)
      fill_tiles<Fill, COLUMNS>(pair.fill, chunk.spans[s].first_tile() + i, chunk.spans[s],
                                pair.ahead, slot, memory);
}

template <class T, class K, class Fill, int TILE, int COLUMNS>
void multiply_grouped_tile(T& unit, const Pair<Fill>& pair, const Chunk& chunk,
                           const TokenPair& tokens, TileMemory& memory) {
  for (int c = 0; c < COLUMNS; ++c) {
    if (tokens.rows[TILE] == tile_tokens)
      multiply_groups<T, K, Fill, TILE, true>(unit, pair, c, chunk, tokens, memory);
    else
      multiply_groups<T, K, Fill, TILE, false>(unit, pair, c, chunk, tokens, memory);
  }
}

// Whether the weights of a chunk stand in their tiles.
enum class Weights { to_fill, filled };
template <class T, class K, class Fill, int COLUMNS>
void multiply_tokens(T& unit, const Pair<Fill>& pair, const Chunk& chunk, const TokenPair& tokens,
                     Weights weights, TileMemory& memory) {
  const bool fills = weights == Weights::to_fill;
  unit.rows(static_cast<int>(tokens.rows[0]), static_cast<int>(tokens.rows[1]));
  if constexpr (!Fill::in_weights) {
    if (chunk.spans[0].opens && chunk.spans[0].closes) {
      if (fills) fill_chunk<Fill, COLUMNS>(pair, chunk, memory);
      multiply_grouped_tile<T, K, Fill, 0, COLUMNS>(unit, pair, chunk, tokens, memory);
      if (tokens.rows[1] == 0) return;
      return multiply_grouped_tile<T, K, Fill, 1, COLUMNS>(unit, pair, chunk, tokens, memory);
    }
  }
  if (tokens.rows[1] == 0) {
    if (fills)
      return multiply_chunk<T, K, Fill, 1, COLUMNS, true>(unit, pair, chunk, tokens, memory);
    return multiply_chunk<T, K, Fill, 1, COLUMNS, false>(unit, pair, chunk, tokens, memory);
  }
  if (fills) return multiply_chunk<T, K, Fill, 2, COLUMNS, true>(unit, pair, chunk, tokens, memory);
  multiply_chunk<T, K, Fill, 2, COLUMNS, false>(unit, pair, chunk, tokens, memory);
}

// y: of the pair, by column.
template <class T, class K, class Fill, int COLUMNS>
void run_pair(T& unit, const Lane16Tiles& run, const Lane16Blocks& left, const Lane16Blocks& right,
              float* left_y, float* right_y, TileMemory& memory) {
  const std::int64_t all = left.k / 16;
  const std::int64_t block_bytes = all * Fill::cell_bytes;
  const Pair<Fill> pair{.blocks = {&left, &right},
                        .fill = {Fill(left), Fill(right)},
                        .ahead = {2048, block_bytes, (run.step - 1) * block_bytes},
                        .kept = run.tokens <= 2 * tile_tokens};
  const std::int64_t row = tile_row(left.k);
  const std::int64_t own = K::fixed_cells != 0 ? K::fixed_cells : left.group / 16;
  const std::int64_t group_cells = Fill::in_weights || own >= all ? 0 : own;
  Chunk chunk;
  for (std::int64_t cell = 0; cell < all; cell = chunk.end_cell) {
    next_chunk(cell, all, group_cells, chunk);
    for (std::int64_t t = 0; t < run.tokens; t += 2 * tile_tokens) {
      const std::int64_t next = t + tile_tokens;
      const bool two = next < run.tokens;
      const TokenPair tokens{
          .x = {run.x + t * row, run.x + (two ? next : t) * row},
          .rows = {tile_rows(t, run.tokens), two ? tile_rows(next, run.tokens) : 0},
          .y = {left_y + t * run.y_token, right_y + t * run.y_token},
          .y_token = run.y_token};
      multiply_tokens<T, K, Fill, COLUMNS>(unit, pair, chunk, tokens,
                                           t == 0 ? Weights::to_fill : Weights::filled, memory);
    }
  }
}

template <class K>
FEWBIT_INLINE Lane16Blocks block_at(const Lane16Blocks& from, std::int64_t index) {
  Lane16Blocks block = from;
  const BlockPlace at = block_place<K>(from, index);
  block.codes = at.codes;
  block.scales = at.scales;
  block.zeros = at.zeros;
  block.blocks = 1;
  return block;
}

// Pairs by Fill where their scales are ordinary for it, others by Plain.
template <class T, class K, class Fill, class Plain, int COLUMNS>
void run_pairs(const Lane16Tiles& run) {
  TileMemory memory;
  T unit;
  for (std::int64_t p = 0; p < run.pairs; ++p) {
    const Lane16Blocks left = block_at<K>(run.left, p * run.step);
    const Lane16Blocks right = COLUMNS == 2 ? block_at<K>(run.right, p * run.step) : left;
    float* left_y = run.left_y + p * run.y_pair;
    float* right_y = COLUMNS == 2 ? run.right_y + p * run.y_pair : left_y;
    if (Fill::ordinary(left) && (COLUMNS == 1 || Fill::ordinary(right)))
      run_pair<T, K, Fill, COLUMNS>(unit, run, left, right, left_y, right_y, memory);
    else
      run_pair<T, K, Plain, COLUMNS>(unit, run, left, right, left_y, right_y, memory);
  }
  unit.release();
}

template <class T, class K, class Fill, class Plain>
void run_by_columns(const Lane16Tiles& run) {
  if (run.right.codes == nullptr) return run_pairs<T, K, Fill, Plain, 1>(run);
  run_pairs<T, K, Fill, Plain, 2>(run);
}

template <class T, class K>
void run_e2m1(const Lane16Tiles& run) {
  using Plain = TableFill<K, false>;
  if (run.left.scale_format == Lane16Scale::f8_e4m3)
    return run_by_columns<T, K, E4m3Fill<K>, Plain>(run);
  if (run.left.scale_format == Lane16Scale::f8_e8m0)
    return run_by_columns<T, K, E8m0Fill<K>, Plain>(run);
  run_by_columns<T, K, Plain, Plain>(run);
}

template <class T, class K>
void run_e4m3(const Lane16Tiles& run) {
  using Plain = Fp8Fill<K, false>;
  if (run.left.scale_format == Lane16Scale::f8_e8m0)
    return run_by_columns<T, K, Fp8Fill<K, true>, Plain>(run);
  run_by_columns<T, K, Plain, Plain>(run);
}

// Kinds whose cells give f32 that are exact in bf16.
template <class T, class K, class Fill = CellFill<K>>
void run_plain(const Lane16Tiles& run) {
  run_by_columns<T, K, Fill, Fill>(run);
}

template <class T>
Lane16TilesFn* tiles_of(Lane16Codes codes) {
  using L = Avx512;
  using Int4 = Kind<Int4Cell<L>, false>;
  using Zeros4 = Kind<ZeroInt4Cell<L>, true>;
  switch (codes) {
    case Lane16Codes::nvfp4:
      return run_e2m1<T, Kind<E2m1Cell<L>, false, 1>>;
    case Lane16Codes::f4_e2m1:
      return run_e2m1<T, Kind<E2m1Cell<L>, false>>;
    case Lane16Codes::int4:
      return run_plain<T, Int4, TableFill<Int4, true>>;
    case Lane16Codes::int4_zeros:
      return run_by_columns<T, Zeros4, ZeroInt4Fill<Zeros4>, CellFill<Zeros4>>;
    case Lane16Codes::int8:
      return run_plain<T, Kind<Int8Cell<L>, false>>;
    case Lane16Codes::int8_zeros:
      return run_plain<T, Kind<ZeroInt8Cell<L>, true>>;
    case Lane16Codes::ternary:
      return run_plain<T, Kind<TernaryCell<L>, false>>;
    case Lane16Codes::nf3:
    case Lane16Codes::q4_k:
    case Lane16Codes::q6_k:
      return nullptr;
    default:
      return run_e4m3<T, Kind<ExactE4m3Cell<L>, false>>;
  }
}

#undef FEWBIT_INLINE
