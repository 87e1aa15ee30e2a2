// SPDX-License-Identifier: Apache-2.0
#include "layout/ordered_blocks.hpp"

#include <algorithm>
#include <array>

namespace fewbit {
namespace {

// Of blocks whose lines are found at a time: the next ones are on their way while these are moved.
constexpr std::int64_t found_bytes = 2 * block_buffer_bytes;
constexpr std::int64_t cache_line = 64;
constexpr std::int64_t smallest_block = 8;
constexpr std::int64_t smallest_line = 4;
constexpr std::int64_t smallest_register = 32;  // of movers that read them

}  // namespace

void ReadLater::fetch(std::int64_t bytes) {
  for (; bytes > 0 && pieces_ > 0; bytes -= piece_bytes_) {
    constexpr int read = 0;
    constexpr int second_level = 2;
    for (std::int64_t i = 0; i < piece_bytes_; i += cache_line) {
      __builtin_prefetch(at_ + i, read, second_level);
    }
    at_ += pitch_;
    --pieces_;
  }
}

std::vector<std::int64_t> row_starts(std::span<const std::int32_t> order, std::int64_t row_bytes) {
  std::vector<std::int64_t> starts(order.size());
  std::ranges::transform(order, starts.begin(),
                         [row_bytes](std::int32_t row) { return row * row_bytes; });
  return starts;
}

struct OrderedBlocks::Lines {
  std::array<BlockCopy, found_bytes / smallest_block> blocks;
  std::array<BlockCopy, found_bytes / smallest_line> lines;
  std::array<std::int64_t, found_bytes / smallest_register> registers;
};

OrderedBlocks::OrderedBlocks(const SourceRows& rows, const BlockMoves& moves,
                             const BlockMover& mover)
    : rows_(rows), mover_(mover) {
  if (mover.reads_registers && moves.register_from != nullptr) {
    const std::int64_t count = moves.buffer_bytes * 8 >> mover.register_log2;
    for (std::int64_t i = 0; i < count; ++i) registers_.push_back(place(moves.register_from[i]));
  } else {
    for (std::int64_t i = 0; i < moves.line_count; ++i) {
      lines_.push_back(place(moves.lines[i].from));
    }
  }
}

OrderedBlocks::RowPlace OrderedBlocks::place(std::int64_t planned) const {
  return {.row = planned / rows_.pitch(), .byte = planned % rows_.pitch()};
}

void OrderedBlocks::find_lines(const BlockMoves& moves, const BlockRun& run, Lines& lines) const {
  BlockCopy* line = lines.lines.data();
  std::int64_t* of_register = lines.registers.data();
  for (std::int64_t i = 0; i < run.count; ++i) {
    const RowPlace first = place(run.blocks[i].from);
    const std::int64_t* const starts = rows_.starts.data() + first.row;
    lines.blocks[static_cast<std::size_t>(i)] = {.from = 0, .to = run.blocks[i].to};
    for (const RowPlace& at : registers_) {
      *of_register = starts[at.row] + first.byte + at.byte;
      __builtin_prefetch(run.source + *of_register++);
    }
    const BlockCopy* planned = moves.lines;
    for (const RowPlace& at : lines_) {
      *line = {.from = starts[at.row] + first.byte + at.byte, .to = planned++->to};
      for (std::int64_t byte = 0; byte < moves.line_bytes; byte += cache_line) {
        __builtin_prefetch(run.source + line->from + byte);
      }
      ++line;
    }
  }
}

void OrderedBlocks::move(const BlockMoves& moves, const BlockRun& run) const {
  const std::int64_t most = found_bytes / moves.buffer_bytes;
  const auto part = [&](std::int64_t first) {
    BlockRun blocks = run;
    blocks.blocks += first;
    blocks.count = std::min(most, run.count - first);
    return blocks;
  };
  std::array<Lines, 2> found;
  find_lines(moves, part(0), found[0]);
  for (std::int64_t first = 0; first < run.count; first += most) {
    const auto side = static_cast<std::size_t>(first / most % 2);
    if (first + most < run.count) find_lines(moves, part(first + most), found[1 - side]);
    BlockMoves own = moves;
    own.lines = found[side].lines.data();
    own.register_from = registers_.empty() ? nullptr : found[side].registers.data();
    BlockRun blocks = part(first);
    blocks.blocks = found[side].blocks.data();
    blocks.own_lines = true;
    if (rows_.later != nullptr) rows_.later->fetch(blocks.count * moves.buffer_bytes);
    mover_.move(own, blocks);
  }
}

}  // namespace fewbit
