// SPDX-License-Identifier: Apache-2.0
#include "layout/cpu_k_blocks.hpp"

#include <cstring>

namespace fewbit {
namespace {

// One run of a block of one row, to or from its units in a cell.
template <int unit, class Move>
void move_run(const LaneRun& run, const Move& move) {
  for (int i = run.begin; i < run.end; i += unit)
    move(i, run.begin * 16 + (i - run.begin) * 16, std::integral_constant<std::size_t, unit>{});
}

// move(byte of the block, byte of the cell but for the row's part, size)
template <class Block, class Move>
void move_block(const Move& move) {
  for (const LaneRun& run : Block::runs) {
    if (run.unit == 4) move_run<4>(run, move);
    if (run.unit == 2) move_run<2>(run, move);
    if (run.unit == 1) move_run<1>(run, move);
  }
}

// work(row of the block of rows, k / 256, its block, its cell)
template <class Block, class Rows, class Cells, class Work>
void for_blocks(Dims dims, Rows* rows, Cells* cells, const Work& work) {
  using Lanes = CpuBlockLane16<Block>;
  const std::int64_t count = dims.k / Lanes::block_k;
  const std::int64_t row_bytes = count * Block::bytes;
  for (std::int64_t first = 0; first < dims.n; first += Lanes::block_rows) {
    const std::int64_t left = dims.n - first;
    const std::int64_t here = left < Lanes::block_rows ? left : Lanes::block_rows;
    for (std::int64_t b = 0; b < count; ++b, cells += Lanes::cell_bytes)
      work(here, rows + first * row_bytes + b * Block::bytes, row_bytes, cells);
  }
}

template <class Block>
void pack(Dims dims, const std::uint8_t* rows, std::uint8_t* out) {
  for_blocks<Block>(
      dims, rows, out,
      [](std::int64_t here, const std::uint8_t* from, std::int64_t row_bytes, std::uint8_t* cell) {
        if (here < 16) std::memset(cell, 0, CpuBlockLane16<Block>::cell_bytes);
        for (std::int64_t r = 0; r < here; ++r, from += row_bytes) {
          move_block<Block>([&](int i, int at, auto size) {
            std::memcpy(cell + at + r * std::int64_t{size}, from + i, size);
          });
        }
      });
}

template <class Block>
void unpack(Dims dims, const std::uint8_t* packed, std::uint8_t* rows) {
  for_blocks<Block>(
      dims, rows, packed,
      [](std::int64_t here, std::uint8_t* to, std::int64_t row_bytes, const std::uint8_t* cell) {
        for (std::int64_t r = 0; r < here; ++r, to += row_bytes) {
          move_block<Block>([&](int i, int at, auto size) {
            std::memcpy(to + i, cell + at + r * std::int64_t{size}, size);
          });
        }
      });
}

}  // namespace

void pack_cpu_q4_k(Dims dims, const std::uint8_t* rows, std::uint8_t* out) {
  pack<Q4kBlock>(dims, rows, out);
}
void pack_cpu_q6_k(Dims dims, const std::uint8_t* rows, std::uint8_t* out) {
  pack<Q6kBlock>(dims, rows, out);
}
void unpack_cpu_q4_k(Dims dims, const std::uint8_t* packed, std::uint8_t* rows) {
  unpack<Q4kBlock>(dims, packed, rows);
}
void unpack_cpu_q6_k(Dims dims, const std::uint8_t* packed, std::uint8_t* rows) {
  unpack<Q6kBlock>(dims, packed, rows);
}

}  // namespace fewbit
