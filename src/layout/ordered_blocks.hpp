// SPDX-License-Identifier: Apache-2.0
// Blocks of a source whose rows k lie in another order (act-order): the same plan for each, with
// lines of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "layout/block_plan.hpp"
#include "layout/pack_fast_blocks.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Memory in pieces that is read after what is moved now: on its way meanwhile.
class ReadLater {
 public:
  ReadLater() = default;
  ReadLater(const std::byte* first, std::int64_t pieces, std::int64_t piece_bytes,
            std::int64_t pitch)
      : at_(first), pieces_(pieces), piece_bytes_(piece_bytes), pitch_(pitch) {}

  // The next pieces of so many bytes in all, into the second-level cache.
  void fetch(std::int64_t bytes);

 private:
  const std::byte* at_ = nullptr;
  std::int64_t pieces_ = 0;
  std::int64_t piece_bytes_ = 0;
  std::int64_t pitch_ = 0;
};

// Row k, row_bytes on their own, starts at starts[k] instead of k * row_bytes.
//
// Blocks are planned for rows with space between them: lines of one row don't go on in the next
// one.
struct SourceRows {
  std::span<const std::int64_t> starts{};  // empty: the rows follow each other
  std::int64_t row_bytes = 0;
  ReadLater* later = nullptr;  // as many bytes of it as are moved; for one thread then

  std::int64_t pitch() const { return 2 * row_bytes; }  // as planned
  std::int64_t planned(std::int64_t byte) const { return byte + byte / row_bytes * row_bytes; }
  // Of a planned byte.
  std::int64_t byte(std::int64_t planned) const {
    return starts[static_cast<std::size_t>(planned / pitch())] + planned % pitch();
  }
};

std::vector<std::int64_t> row_starts(std::span<const std::int32_t> order, std::int64_t row_bytes);

// Where the lines of a plan lie from a block's first row on.
class OrderedBlocks {
 public:
  // moves: of the plan, as it is going to be run.
  OrderedBlocks(const SourceRows& rows, const BlockMoves& moves, const BlockMover& mover);

  // run.blocks: from the planned source.
  void move(const BlockMoves& moves, const BlockRun& run) const;

 private:
  struct RowPlace {
    std::int64_t row;
    std::int64_t byte;  // of it
  };
  struct Lines;
  RowPlace place(std::int64_t planned) const;
  void find_lines(const BlockMoves& moves, const BlockRun& run, Lines& lines) const;

  SourceRows rows_;
  BlockMover mover_;
  std::vector<RowPlace> lines_;      // of movers that copy lines, or
  std::vector<RowPlace> registers_;  // of those that read registers
};

}  // namespace fewbit
