// SPDX-License-Identifier: Apache-2.0
// Moves all elements of a matrix from one layout to another, block by block at the speed of memory
// where the two layouts allow it, one by one at ragged edges. The bytes are those that pack()
// gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "fewbit/executor.hpp"
#include "fewbit/selection.hpp"
#include "layout/block_plan.hpp"
#include "layout/byte_survey.hpp"
#include "layout/ordered_blocks.hpp"
#include "layout/place.hpp"

namespace fewbit {

// Elements (n, k) of the result with first.n <= n < first.n + count.n, and so for k.
struct ElementRange {
  Element first;
  Dims count;
  // Largest blocks, powers of two; their elements fit block_buffer_bytes. Within a block, aligned
  // to its size in the result, source and result are to be sums of what n and what k give; so are
  // the firsts of all blocks.
  Dims block;
};

struct ElementMap {
  int bits = 0;  // of an element: 1, 2, 4, 8, 16 or 32
  // What becomes of the elements on their way: 2^bits entries, for 4 and 8 bits; null: nothing.
  const std::uint8_t* table = nullptr;
  ByteRange present{.first = 0, .last = 255};  // 8 bits: the elements that there are
  bool read_soon = false;  // the result: it stays in the caches then, as far as it fits
  SourceRows rows{};
  std::function<Place(std::int64_t n, std::int64_t k)> source;  // as if rows followed each other
  std::function<Place(std::int64_t n, std::int64_t k)> out;
  std::vector<ElementRange> ranges;
};

struct ElementTable {
  const std::uint8_t* entries = nullptr;  // ElementMap::table
  ByteRange present{.first = 0, .last = 255};
};

// The level of this machine, as FEWBIT_ISA caps it; generic when that names none.
IsaLevel packing_isa();

class ElementMover {
 public:
  ElementMover(ElementMap map, IsaLevel isa);

  // The work falls into that many independent tasks, which write different elements.
  std::int64_t tasks() const { return static_cast<std::int64_t>(tasks_.size()); }
  void run(std::int64_t task, const std::byte* source, std::byte* out) const;
  // With another table than the map's.
  void run(std::int64_t task, const ElementTable& table, const std::byte* source,
           std::byte* out) const;
  // First n of a task.
  std::int64_t first_n(std::int64_t task) const;
  void run_all(const std::byte* source, std::byte* out) const;
  void run_all(const ElementTable& table, const std::byte* source, std::byte* out) const;
  // Of how many elements a block plan takes care.
  std::int64_t elements_by_blocks() const;

 private:
  // Blocks of one size, alike but for their place.
  struct Area {
    Dims block;
    std::optional<BlockPlan> plan;  // none: one by one
    std::optional<OrderedBlocks> ordered;
    std::vector<std::int64_t> later;  // BlockMoves::later
  };
  // Blocks of an area that follow each other in a task.
  struct Band {
    std::size_t area = 0;
    std::size_t first = 0;  // of blocks_
    std::size_t count = 0;
  };
  struct Task {
    std::int64_t first_n = 0;
    std::size_t first_band = 0;
    std::size_t bands = 0;
  };
  struct Grid;
  struct Part;

  void add_range(const ElementRange& range);
  void plan_patches(Grid& grid, const ElementRange& range) const;
  void read_patches_ahead(const Grid& grid);
  void add_task(Grid& grid, const Part& part);
  void add_patches(Grid& grid, const Part& part);
  void add_block(Grid& grid, std::size_t n, std::size_t k);
  Area make_area(Element first, Dims block, bool whole_bytes) const;
  void plan_later(Area& area, const Grid& grid, Element first) const;
  BlockMoves moves_of(const BlockPlan& plan, const ElementTable& table) const;
  struct Sides;
  void move_one_by_one(Dims block, Element first, const Sides& sides) const;
  void run_band(const Band& band, const Sides& sides) const;
  ElementTable own_table() const { return {.entries = map_.table, .present = map_.present}; }

  ElementMap map_;
  BlockMover mover_;
  std::vector<Area> areas_;
  std::vector<BlockCopy> blocks_;  // in bytes; of areas without a plan: their first n and k
  std::vector<ReadAhead> later_;   // of each block of an area with `later`
  std::vector<Band> bands_;
  std::vector<Task> tasks_;
};

// A buffer with the share of each of `experts`, one after another.
struct ExpertBytes {
  std::int64_t experts = 1;
  std::int64_t source_bytes = 0;  // of one
  std::int64_t out_bytes = 0;
};

// All experts on all threads. The bytes do not depend on their number.
void move_elements(const ElementMover& mover, const ExpertBytes& share,
                   std::span<const std::byte> source, std::span<std::byte> out, Executor& executor);

}  // namespace fewbit
