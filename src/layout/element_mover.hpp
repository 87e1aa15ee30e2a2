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
  std::function<Place(std::int64_t n, std::int64_t k)> source;
  std::function<Place(std::int64_t n, std::int64_t k)> out;
  std::vector<ElementRange> ranges;
};

// The level of this machine, as FEWBIT_ISA caps it; generic when that names none.
IsaLevel packing_isa();

class ElementMover {
 public:
  ElementMover(ElementMap map, IsaLevel isa);

  // The work falls into that many independent tasks, which write different elements.
  std::int64_t tasks() const { return static_cast<std::int64_t>(tasks_.size()); }
  void run(std::int64_t task, const std::byte* source, std::byte* out) const;
  // First n of a task.
  std::int64_t first_n(std::int64_t task) const;
  void run_all(const std::byte* source, std::byte* out) const;
  // Of how many elements a block plan takes care.
  std::int64_t elements_by_blocks() const;

 private:
  // Neighbouring blocks along k of one size.
  struct Run {
    std::optional<BlockPlan> plan;  // none: one by one
    std::vector<BlockCopy> blocks;  // in bytes from the first k of the range
    std::int64_t first_k = 0;
    Dims block;
  };
  // All runs of the blocks of one height of a range.
  struct Row {
    std::int64_t first_k = 0;
    std::vector<Run> runs;
  };
  struct Strip {  // a row at its place
    std::size_t row = 0;
    std::int64_t first_n = 0;
  };
  struct Task {
    std::size_t first_strip = 0;
    std::size_t strips = 0;
  };

  void add_range(const ElementRange& range);
  Row make_row(const ElementRange& range, Element first, std::int64_t height) const;
  Run make_run(Element first, Dims block, std::int64_t count, std::int64_t range_k) const;
  void run_strips(std::span<const Strip> strips, const std::byte* source, std::byte* out) const;
  void run_blocks(const Strip& strip, const Run& run, std::int64_t first, const std::byte* source,
                  std::byte* out) const;
  void move_one_by_one(const Run& run, std::int64_t first_n, const std::byte* source,
                       std::byte* out) const;

  ElementMap map_;
  BlockMover mover_;
  std::vector<Row> rows_;
  std::vector<Strip> strips_;
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
