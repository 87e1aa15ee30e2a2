// SPDX-License-Identifier: Apache-2.0
// The loops of lane16_tiles over any unit of tiles T and any fill. Included inside a target region
// with AVX-512, after lane16_tile_fills.hpp, so it includes nothing itself. T, one a run:
//
//   rows(count)            from now on tiles of tokens and sums have so many rows; where that is
//                          new, all tiles are cleared
//   release()              gives the unit back
//   zero<C>()              C: 0, 1 the first tokens by the left and right block, 2, 3 the second
//   load<C>, store<C>(memory, bytes from a row to the next)
//   operand<A>(memory)     A: 4, 5 the first and second tokens (rows of 64 bytes), 6, 7 left and
//                          right
//   dot<C, A, B>()         C += A B
//
// Tiles of tokens have one size or are one row smaller (tile_operand.hpp): all take the larger one,
// since a change costs as much as twelve products; what the row too many gives is left behind.
//
// Weights become tiles a chunk of k ahead of their products, into memory that the products of this
// chunk have just left: the unit reads what vectors stored only when it has reached the cache, and
// both go on side by side.
#pragma once

#include "kernels/cpu/lane16_tile_chunks.hpp"
#include "kernels/cpu/lane16_tile_products.hpp"

#define FEWBIT_INLINE static inline __attribute__((always_inline))

template <class T, class K, class Fill, int TILES, int COLUMNS, bool FILLS>
FEWBIT_INLINE void multiply_tiles(T& unit, const Pair<Fill>& pair, const ChunkCut& cut,
                                  const Chunk& chunk, const Passage& passage,
                                  const TokenTiles& tokens, Filler<Fill>* next,
                                  TileMemory& memory) {
  if constexpr (!Fill::in_weights) {
    if (cut.group_cells > 4)
      return multiply_groups<T, K, Fill, TILES, COLUMNS, FILLS>(unit, pair, chunk, tokens, next,
                                                                memory);
    if (cut.group_cells != 0)
      return multiply_short<T, K, Fill, TILES, COLUMNS, FILLS>(unit, pair, chunk, tokens, next,
                                                               memory);
  }
  multiply_whole<T, K, Fill, TILES, COLUMNS, FILLS>(unit, pair, chunk, passage, tokens, next,
                                                    memory);
}

FEWBIT_INLINE TokenTiles token_tiles(const Lane16Tiles& run, float* const (&y)[2],
                                     std::int64_t first, std::int64_t count, TileMemory& memory) {
  const std::int64_t row = tile_row(run.left.k);
  TokenTiles tokens;
  for (std::int64_t i = 0; i < 2; ++i) {
    const std::int64_t tile = first + (i < count ? i : 0);
    const std::int64_t begin = tile_begin(run.tokens, tile);
    tokens.tokens[i] = tile_begin(run.tokens, tile + 1) - begin;
    tokens.x[i] = run.x + begin * row;
    tokens.line[i] = tokens.tokens[i] * tile_k;
    for (int c = 0; c < 2; ++c) tokens.y[i][c] = y[c] + begin * run.y_token;
  }
  tokens.y_token = run.y_token;
  tokens.waiting = memory.waiting[(first + 1) / 2][0];
  return tokens;
}

// A chunk times all tokens, a tile alone first; the last ones leave its place to the next chunk.
template <class T, class K, class Fill, int COLUMNS>
void run_chunk(T& unit, const Lane16Tiles& run, const Pair<Fill>& pair, const ChunkCut& cut,
               const Chunk& chunk, Filler<Fill>* next, TileMemory& memory) {
  const std::int64_t tiles = tile_count(run.tokens);
  const Sums between = tiles <= 2 ? Sums::in_tiles : Sums::waiting;
  const Passage passage{chunk.spans[0].first_cell == 0 ? Sums::none : between,
                        chunk.end_cell == cut.cells ? Sums::done : between};
  std::int64_t tile = 0;
  if (tiles % 2 != 0) {
    const TokenTiles tokens = token_tiles(run, pair.y, 0, 1, memory);
    if (tiles == 1)
      return multiply_tiles<T, K, Fill, 1, COLUMNS, true>(unit, pair, cut, chunk, passage, tokens,
                                                          next, memory);
    multiply_tiles<T, K, Fill, 1, COLUMNS, false>(unit, pair, cut, chunk, passage, tokens, next,
                                                  memory);
    tile = 1;
  }
  for (; tile + 2 < tiles; tile += 2)
    multiply_tiles<T, K, Fill, 2, COLUMNS, false>(
        unit, pair, cut, chunk, passage, token_tiles(run, pair.y, tile, 2, memory), next, memory);
  multiply_tiles<T, K, Fill, 2, COLUMNS, true>(
      unit, pair, cut, chunk, passage, token_tiles(run, pair.y, tile, 2, memory), next, memory);
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

template <class K, class Fill, int COLUMNS>
FEWBIT_INLINE Pair<Fill> pair_at(const Lane16Tiles& run, std::int64_t index) {
  const Lane16Blocks left = block_at<K>(run.left, index * run.step);
  const Lane16Blocks right = COLUMNS == 2 ? block_at<K>(run.right, index * run.step) : left;
  float* const left_y = run.left_y + index * run.y_pair;
  float* const right_y = COLUMNS == 2 ? run.right_y + index * run.y_pair : left_y;
  return {.blocks = {left, right}, .fill = {Fill(left), Fill(right)}, .y = {left_y, right_y}};
}

template <class K, class Fill, int COLUMNS>
bool ordinary_at(const Lane16Tiles& run, std::int64_t index) {
  return Fill::ordinary(block_at<K>(run.left, index * run.step)) &&
         (COLUMNS == 1 || Fill::ordinary(block_at<K>(run.right, index * run.step)));
}

// The fillers of a chunk's columns.
template <class Fill>
struct Fillers {
  Filler<Fill> of[2];
};
template <class Fill>
FEWBIT_INLINE Fillers<Fill> fillers(const Pair<Fill>& pair, const Chunk& chunk, const Ahead& ahead,
                                    TileMemory& memory) {
  return {{{pair.fill[0], &chunk, ahead, memory.weights[0]},
           {pair.fill[1], &chunk, ahead, memory.weights[1]}}};
}

// Pairs from `first` on by By, as long as they are all ordinary for Fill or all not; returns the
// one after.
template <class T, class K, class Fill, class By, int COLUMNS>
std::int64_t run_alike(T& unit, const Lane16Tiles& run, std::int64_t first, bool ordinary,
                       TileMemory& memory) {
  const std::int64_t all = run.left.k / 16;
  const std::int64_t block_bytes = all * By::cell_bytes;
  const Ahead ahead{2048, block_bytes, (run.step - 1) * block_bytes};
  const std::int64_t own = cells_of_group<K>(run.left);
  const ChunkCut cut = chunk_cut(all, By::in_weights || own >= all ? 0 : own);
  Pair<By> pair = pair_at<K, By, COLUMNS>(run, first);
  Chunk chunk;
  next_chunk(cut, 0, chunk);
  Fillers<By> begin = fillers(pair, chunk, ahead, memory);
  for (int c = 0; c < COLUMNS; ++c) begin.of[c].to(chunk_tiles);
  for (std::int64_t p = first;;) {
    Pair<By> next_pair = pair;
    Chunk next;
    next_chunk(cut, chunk.end_cell, next);
    const bool ends = next.tiles == 0;
    const bool last =
        ends && (p + 1 == run.pairs || ordinary_at<K, Fill, COLUMNS>(run, p + 1) != ordinary);
    if (ends && !last) {
      next_pair = pair_at<K, By, COLUMNS>(run, p + 1);
      next_chunk(cut, 0, next);
    }
    Fillers<By> fill = fillers(next_pair, next, ahead, memory);
    run_chunk<T, K, By, COLUMNS>(unit, run, pair, cut, chunk, fill.of, memory);
    if (last) return p + 1;
    for (int c = 0; c < COLUMNS; ++c) fill.of[c].to(chunk_tiles);
    pair = next_pair;
    chunk = next;
    if (ends) ++p;
  }
}

// Pairs by Fill where their scales are ordinary for it, others by Plain.
template <class T, class K, class Fill, class Plain, int COLUMNS>
void run_pairs(const Lane16Tiles& run) {
  TileMemory memory;
  T unit;
  const std::int64_t tiles = tile_count(run.tokens);
  unit.rows(static_cast<int>((run.tokens + tiles - 1) / tiles));
  for (std::int64_t p = 0; p < run.pairs;) {
    if (ordinary_at<K, Fill, COLUMNS>(run, p))
      p = run_alike<T, K, Fill, Fill, COLUMNS>(unit, run, p, true, memory);
    else
      p = run_alike<T, K, Fill, Plain, COLUMNS>(unit, run, p, false, memory);
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
