// SPDX-License-Identifier: Apache-2.0
// How k is cut into chunks of tiles of weights, and how these are filled. Included inside a target
// region with AVX-512, after lane16_tile_fills.hpp, so it includes nothing itself.
#pragma once

#define FEWBIT_INLINE static inline __attribute__((always_inline))
#define FEWBIT_MEMBER inline __attribute__((always_inline))

// Tiles of weights that stand in the first-level cache at a time, of each block. With 16, tokens
// that come from the second-level cache push them out: 0.62 of the unit's rate against 0.70 to 0.75
// (a Xeon of the fifth generation, no filling).
constexpr int chunk_tiles = 8;

// Codes that are multiplied before their sum is scaled: those of a group or of a part of it, or of
// a chunk, of all whose sum goes on.
struct Span {
  std::int64_t first_cell;
  std::int64_t end_cell;
  std::int64_t first_tile() const { return first_cell / 2; }
  int tiles() const { return static_cast<int>((end_cell + 1) / 2 - first_cell / 2); }
};
struct Chunk {
  Span spans[chunk_tiles];
  int count;
  int tiles;
  std::int64_t end_cell;
};

// How k is cut: group_cells 0 if all of it is one sum, else a group; `most` tiles a chunk.
struct ChunkCut {
  std::int64_t cells;
  std::int64_t group_cells;
  std::int64_t most;
};
// Chunks of as equal a size as can be.
FEWBIT_INLINE ChunkCut chunk_cut(std::int64_t cells, std::int64_t group_cells) {
  const std::int64_t unit = (group_cells + 1) / 2;
  if (group_cells == 0 || unit > chunk_tiles) {
    const std::int64_t tiles = (cells + 1) / 2;
    const std::int64_t chunks = (tiles + chunk_tiles - 1) / chunk_tiles;
    const std::int64_t even = (tiles + chunks - 1) / chunks;
    return {cells, group_cells, group_cells == 0 ? even : chunk_tiles};
  }
  const std::int64_t fit = chunk_tiles / unit;
  const std::int64_t groups = (cells + group_cells - 1) / group_cells;
  const std::int64_t chunks = (groups + fit - 1) / fit;
  return {cells, group_cells, (groups + chunks - 1) / chunks * unit};
}

FEWBIT_INLINE void next_chunk(const ChunkCut& cut, std::int64_t first, Chunk& chunk) {
  chunk.count = 0;
  chunk.tiles = 0;
  std::int64_t cell = first;
  while (cell < cut.cells) {
    // From an odd cell on, one less fills the tiles.
    std::int64_t end = cell / 2 * 2 + 2 * cut.most;
    if (cut.group_cells != 0) {
      const std::int64_t group_end = (cell / cut.group_cells + 1) * cut.group_cells;
      end = end < group_end ? end : group_end;
    }
    const Span span{cell, end < cut.cells ? end : cut.cells};
    if (chunk.tiles + span.tiles() > cut.most) break;
    chunk.tiles += span.tiles();
    chunk.spans[chunk.count++] = span;
    cell = span.end_cell;
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
  alignas(64) float sums[2][4][256];
  // Of each two tiles of tokens, while their other chunks wait.
  alignas(64) float waiting[max_tile_tokens / tile_tokens / 2][4][256];
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

// A tile from two cells; cells outside the span are zero.
template <class Fill>
FEWBIT_INLINE void fill_tile(const Fill& fill, std::int64_t tile, const Span& span,
                             const Ahead& ahead, std::uint16_t* lines) {
  const std::int64_t cell = tile * 2;
  if (cell >= span.first_cell && cell + 1 < span.end_cell) {
    fill_whole(fill, cell, lines);
  } else {
    for (int half = 0; half < 2; ++half) {
      if (cell + half >= span.first_cell && cell + half < span.end_cell) {
        fill.cell(cell + half, lines + half * 256);
      } else {
        for (int line = 0; line < 8; ++line)
          store_line(lines + half * 256, line, _mm512_setzero_si512());
      }
    }
  }
  const std::uint8_t* codes = fill.codes(cell);
  const std::int64_t at = codes - fill.codes(0) + ahead.distance;
  const std::uint8_t* next = codes + ahead.distance + (at >= ahead.block_bytes ? ahead.skip : 0);
#pragma GCC unroll 8
  for (int line = 0; line < 2 * Fill::cell_bytes; line += 64) __builtin_prefetch(next + line);
}

// A chunk of one block as it becomes tiles, one after the other.
template <class Fill>
struct Filler {
  Fill fill;
  const Chunk* chunk;
  Ahead ahead;
  std::uint16_t (*lines)[512];
  int span = 0;
  int in_span = 0;
  int slot = 0;

  // The tiles up to slot `end`.
  FEWBIT_MEMBER void to(int end) {
    while (slot < end && slot < chunk->tiles) {
      const Span& of = chunk->spans[span];
      const Fill here = fill;  // whose tables no store can change
      fill_tile(here, of.first_tile() + in_span, of, ahead, lines[slot]);
      ++slot;
      if (++in_span < of.tiles()) continue;
      in_span = 0;
      ++span;
    }
  }
};

#undef FEWBIT_MEMBER
#undef FEWBIT_INLINE
