// SPDX-License-Identifier: Apache-2.0
#include "layout/element_mover.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <utility>

#include "layout/one_element.hpp"
#include "layout/parallel_ranges.hpp"

namespace fewbit {
namespace {

// Tasks share no byte: no layout packs columns n into one that are 64 or more apart, or rows k. And
// neighbouring blocks of a task are done together, so that lines of 64 bytes along n add up.
constexpr std::int64_t task_columns = 512;
constexpr std::int64_t task_rows = 64;
constexpr std::int64_t task_bytes = 1 << 16;  // of rows, at least
constexpr std::size_t walk_blocks = 4;        // along k, before the next columns' turn
// Of rows that are read as runs: at a time, and of each row. Measured for rows of 256 B to 8 KiB:
// twice the bytes no longer stay in the first-level cache, longer runs are of fewer rows, whose
// columns in the result are scattered more.
constexpr std::int64_t patch_bytes = 1 << 15;
constexpr std::int64_t run_bytes = 256;

struct Segment {
  std::int64_t first = 0;
  std::int64_t size = 0;
};

// [first, first + count) in powers of two up to `most`, each aligned to its size.
std::vector<Segment> aligned_segments(std::int64_t first, std::int64_t count, std::int64_t most) {
  std::vector<Segment> segments;
  const std::int64_t end = first + count;
  while (first < end) {
    const auto left = std::bit_floor(static_cast<std::uint64_t>(end - first));
    std::int64_t size = std::min(most, static_cast<std::int64_t>(left));
    if (first != 0) size = std::min(size, first & -first);
    segments.push_back({.first = first, .size = size});
    first += size;
  }
  return segments;
}

std::size_t as_index(std::int64_t i) { return static_cast<std::size_t>(i); }

const std::uint8_t* as_u8(const std::byte* bytes) {
  return reinterpret_cast<const std::uint8_t*>(bytes);
}

}  // namespace

IsaLevel packing_isa() {
  static const IsaLevel level = [] {
    const Result<DeviceInfo> machine = detect_cpu();
    return machine ? machine->isa : IsaLevel::generic;
  }();
  return level;
}

// A range cut into blocks: bits from the first element that those of n and those of k add.
struct ElementMover::Grid {
  struct Axis {
    std::vector<Segment> segments;
    std::vector<std::int64_t> source;
    std::vector<std::int64_t> out;
  };
  Axis n;
  Axis k;
  std::int64_t source = 0;  // of the first element
  std::int64_t out = 0;
  std::map<std::array<std::int64_t, 3>, std::size_t> areas;  // of height, width, whole bytes
  // Blocks of rows that are read as runs: the n and k blocks of a patch; 0: none are.
  std::size_t patch_n = 0;
  std::size_t patch_k = 0;
  struct Patch {
    std::size_t first;   // its first block
    std::size_t height;  // in blocks
  };
  std::vector<Patch> patches;
};

struct ElementMover::Sides {
  const ElementTable& table;
  const std::byte* source;
  std::byte* out;
};

// Blocks of the segments of n from first_n to end_n, and so for k.
struct ElementMover::Part {
  std::size_t first_n, end_n, first_k, end_k;
};

namespace {

// The end of the segments that start in the window of the first one.
std::size_t end_of_window(const std::vector<Segment>& segments, std::size_t first,
                          std::int64_t window) {
  const std::int64_t end = segments[first].first / window * window + window;
  std::size_t i = first + 1;
  while (i < segments.size() && segments[i].first < end) ++i;
  return i;
}

// Rows of so many bits that have about that many bytes: a power of two.
std::int64_t rows_of_bytes(std::int64_t bytes, std::int64_t row_bits) {
  const auto rows = static_cast<std::uint64_t>(bytes * 8 / row_bits);
  return static_cast<std::int64_t>(std::bit_floor(rows));
}

// From the first segment to the second.
std::int64_t step_of(const std::vector<std::int64_t>& places) {
  return places.size() > 1 ? std::abs(places[1]) : 0;
}

}  // namespace

ElementMover::ElementMover(ElementMap map, IsaLevel isa)
    : map_(std::move(map)), mover_(block_mover(isa)) {
  if (!map_.rows.starts.empty()) {
    map_.source = [rows = map_.rows, source = std::move(map_.source)](std::int64_t n,
                                                                      std::int64_t k) {
      const Place place = source(n, k);
      return Place{.byte = rows.planned(place.byte), .bit = place.bit};
    };
  }
  for (const ElementRange& range : map_.ranges) {
    if (range.count.n > 0 && range.count.k > 0) add_range(range);
  }
}

// Layouts whose neighbours along n are near each other in both are moved a few rows k at a time,
// which are two streams through memory; others some columns n at a time.
void ElementMover::add_range(const ElementRange& range) {
  const Element first = range.first;
  Grid grid{.n = {aligned_segments(first.n, range.count.n, range.block.n), {}, {}},
            .k = {aligned_segments(first.k, range.count.k, range.block.k), {}, {}},
            .source = bit_address(map_.source(first.n, first.k)),
            .out = bit_address(map_.out(first.n, first.k)),
            .areas = {},
            .patches = {}};
  for (const Segment& n : grid.n.segments) {
    grid.n.source.push_back(bit_address(map_.source(n.first, first.k)) - grid.source);
    grid.n.out.push_back(bit_address(map_.out(n.first, first.k)) - grid.out);
  }
  for (const Segment& k : grid.k.segments) {
    grid.k.source.push_back(bit_address(map_.source(first.n, k.first)) - grid.source);
    grid.k.out.push_back(bit_address(map_.out(first.n, k.first)) - grid.out);
  }
  const std::size_t n_end = grid.n.segments.size();
  const std::size_t k_end = grid.k.segments.size();
  if (step_of(grid.n.source) < step_of(grid.k.source) &&
      step_of(grid.n.out) < step_of(grid.k.out)) {
    const std::int64_t window = std::max(
        {task_rows, 2 * range.block.k, rows_of_bytes(task_bytes, range.count.n * map_.bits)});
    for (std::size_t k = 0, end = 0; k < k_end; k = end) {
      end = end_of_window(grid.k.segments, k, window);
      add_task(grid, {.first_n = 0, .end_n = n_end, .first_k = k, .end_k = end});
    }
    return;
  }
  plan_patches(grid, range);
  const std::int64_t window = std::max(task_columns, range.block.n);
  for (std::size_t n = 0, end = 0; n < n_end; n = end) {
    end = end_of_window(grid.n.segments, n, window);
    add_task(grid, {.first_n = n, .end_n = end, .first_k = 0, .end_k = k_end});
  }
  read_patches_ahead(grid);
}

// Rows of the source that hold their k one after another are read best in runs, but a block has few
// bytes of many rows. So some blocks are done together, those beside each other in n first, whose
// lines are neighbours in the result of a transpose: memory takes single lines at a third of its
// speed. Meanwhile the rows of the next ones are read, run by run.
void ElementMover::plan_patches(Grid& grid, const ElementRange& range) const {
  const std::int64_t line_bits = range.block.k * map_.bits;
  const bool in_runs = map_.rows.starts.empty() && grid.k.source.size() > 1 &&
                       grid.k.source[1] == line_bits && line_bits % 8 == 0;
  if (!in_runs) return;
  const std::int64_t run = std::min(range.count.k * map_.bits / 8, run_bytes);
  grid.patch_k = as_index(std::max<std::int64_t>(run * 8 / line_bits, 1));
  grid.patch_n = as_index(std::max<std::int64_t>(patch_bytes / run / range.block.n, 1));
}

void ElementMover::read_patches_ahead(const Grid& grid) {
  later_.resize(blocks_.size(), {.from = 0, .part = -1});
  for (std::size_t i = 0; i < grid.patches.size(); ++i) {
    const bool last = i + 1 == grid.patches.size();
    const std::size_t end = last ? blocks_.size() : grid.patches[i + 1].first;
    const Grid::Patch& next = grid.patches[last ? i : i + 1];
    for (std::size_t block = grid.patches[i].first; block < end; ++block) {
      const std::size_t number = block - grid.patches[i].first;
      const std::size_t rows = std::min(number / grid.patch_k, next.height - 1);
      later_[block] = {.from = blocks_[next.first + rows].from,
                       .part = static_cast<std::int64_t>(number % grid.patch_k)};
    }
  }
}

// Some blocks along k, then the next columns; by rows where those are what source or result has.
void ElementMover::add_task(Grid& grid, const Part& part) {
  tasks_.push_back(
      {.first_n = grid.n.segments[part.first_n].first, .first_band = bands_.size(), .bands = 0});
  if (grid.patch_k > 0) return add_patches(grid, part);
  const bool by_rows =
      step_of(grid.n.source) < step_of(grid.k.source) || step_of(grid.n.out) < step_of(grid.k.out);
  const std::size_t walk = by_rows ? 1 : walk_blocks;
  for (std::size_t first = part.first_k; first < part.end_k; first += walk) {
    const std::size_t end = std::min(first + walk, part.end_k);
    for (std::size_t n = part.first_n; n < part.end_n; ++n) {
      for (std::size_t k = first; k < end; ++k) add_block(grid, n, k);
    }
  }
}

void ElementMover::add_patches(Grid& grid, const Part& part) {
  for (std::size_t n = part.first_n; n < part.end_n; n += grid.patch_n) {
    const std::size_t end_n = std::min(n + grid.patch_n, part.end_n);
    for (std::size_t k = part.first_k; k < part.end_k; k += grid.patch_k) {
      const std::size_t end_k = std::min(k + grid.patch_k, part.end_k);
      grid.patches.push_back({.first = blocks_.size(), .height = end_n - n});
      for (std::size_t at_k = k; at_k < end_k; ++at_k) {
        for (std::size_t at_n = n; at_n < end_n; ++at_n) add_block(grid, at_n, at_k);
      }
    }
  }
}

void ElementMover::add_block(Grid& grid, std::size_t n, std::size_t k) {
  const std::int64_t from = grid.source + grid.n.source[n] + grid.k.source[k];
  const std::int64_t to = grid.out + grid.n.out[n] + grid.k.out[k];
  const bool whole_bytes = from % 8 == 0 && to % 8 == 0;
  const Segment& at_n = grid.n.segments[n];
  const Segment& at_k = grid.k.segments[k];
  const auto [found, added] =
      grid.areas.try_emplace({at_n.size, at_k.size, whole_bytes ? 1 : 0}, areas_.size());
  if (added) {
    areas_.push_back(make_area({.n = at_n.first, .k = at_k.first}, {.n = at_n.size, .k = at_k.size},
                               whole_bytes));
    if (grid.patch_k > 0) plan_later(areas_.back(), grid, {.n = at_n.first, .k = at_k.first});
  }
  const std::size_t area = found->second;
  Task& task = tasks_.back();
  if (task.bands == 0 || bands_.back().area != area) {
    bands_.push_back({.area = area, .first = blocks_.size(), .count = 0});
    ++task.bands;
  }
  ++bands_.back().count;
  blocks_.push_back(areas_[area].plan ? BlockCopy{.from = from / 8, .to = to / 8}
                                      : BlockCopy{.from = at_n.first, .to = at_k.first});
}

ElementMover::Area ElementMover::make_area(Element first, Dims block, bool whole_bytes) const {
  Area area{.block = block, .plan = {}, .ordered = {}, .later = {}};
  if (!whole_bytes) return area;
  area.plan = plan_block(block_places(map_.source, first, block),
                         block_places(map_.out, first, block), map_.bits, mover_);
  if (area.plan && !map_.rows.starts.empty()) {
    area.ordered.emplace(map_.rows, moves_of(*area.plan, own_table()), mover_);
  }
  return area;
}

// The runs of the blocks of a patch beside each other in k, register by register.
void ElementMover::plan_later(Area& area, const Grid& grid, Element first) const {
  if (!area.plan) return;
  const std::int64_t register_bytes = std::int64_t{1} << (mover_.register_log2 - 3);
  const std::int64_t run = static_cast<std::int64_t>(grid.patch_k) * area.block.k * map_.bits / 8;
  const std::int64_t base = map_.source(first.n, first.k).byte;
  for (std::int64_t row = 0; row < area.block.n; ++row) {
    const std::int64_t at = map_.source(first.n + row, first.k).byte - base;
    for (std::int64_t byte = 0; byte < run; byte += register_bytes) area.later.push_back(at + byte);
  }
}

BlockMoves ElementMover::moves_of(const BlockPlan& plan, const ElementTable& table) const {
  BlockMoves moves = plan.moves();
  if (table.entries != nullptr) (map_.bits == 4 ? moves.nibbles : moves.bytes) = table.entries;
  moves.first_byte = table.present.first;
  moves.last_byte = table.present.last;
  moves.stream = !map_.read_soon;
  return moves;
}

// Places are sums of what n and what k give: found once for some k, then for each n.
void ElementMover::move_one_by_one(Dims block, Element first, const Sides& sides) const {
  constexpr std::int64_t most = 64;
  std::array<std::int64_t, most> from_k{};
  std::array<std::int64_t, most> to_k{};
  for (std::int64_t at = 0; at < block.k; at += most) {
    const auto count = as_index(std::min(most, block.k - at));
    const std::int64_t k = first.k + at;
    for (std::size_t i = 0; i < count; ++i) {
      from_k[i] = bit_address(map_.source(first.n, k + static_cast<std::int64_t>(i)));
      to_k[i] = bit_address(map_.out(first.n, k + static_cast<std::int64_t>(i)));
    }
    for (std::int64_t n = first.n; n < first.n + block.n; ++n) {
      const std::int64_t from_n = bit_address(map_.source(n, k)) - from_k[0];
      const std::int64_t to_n = bit_address(map_.out(n, k)) - to_k[0];
      for (std::size_t i = 0; i < count; ++i) {
        Place from = place_at(from_n + from_k[i]);
        if (!map_.rows.starts.empty()) from.byte = map_.rows.byte(from.byte);
        const std::uint64_t value = read_element(sides.source, from, map_.bits);
        const std::uint8_t* const entries = sides.table.entries;
        write_element(sides.out, place_at(to_n + to_k[i]), map_.bits,
                      entries != nullptr ? entries[value] : value);
      }
    }
  }
}

void ElementMover::run_band(const Band& band, const Sides& sides) const {
  const Area& area = areas_[band.area];
  const auto blocks = std::span(blocks_).subspan(band.first, band.count);
  if (!area.plan) {
    for (const BlockCopy& at : blocks) {
      move_one_by_one(area.block, {.n = at.from, .k = at.to}, sides);
    }
    return;
  }
  BlockMoves moves = moves_of(*area.plan, sides.table);
  if (!area.later.empty()) moves.later = area.later.data();
  const BlockRun all{.blocks = blocks.data(),
                     .later = area.later.empty() ? nullptr : later_.data() + band.first,
                     .count = std::ssize(blocks),
                     .own_lines = false,
                     .source = as_u8(sides.source),
                     .out = reinterpret_cast<std::uint8_t*>(sides.out)};
  area.ordered ? area.ordered->move(moves, all) : mover_.move(moves, all);
}

void ElementMover::run(std::int64_t task, const ElementTable& table, const std::byte* source,
                       std::byte* out) const {
  const Task& mine = tasks_[static_cast<std::size_t>(task)];
  for (const Band& band : std::span(bands_).subspan(mine.first_band, mine.bands)) {
    run_band(band, {.table = table, .source = source, .out = out});
  }
  mover_.fence();
}

void ElementMover::run(std::int64_t task, const std::byte* source, std::byte* out) const {
  run(task, own_table(), source, out);
}

std::int64_t ElementMover::first_n(std::int64_t task) const {
  return tasks_[static_cast<std::size_t>(task)].first_n;
}

void ElementMover::run_all(const ElementTable& table, const std::byte* source,
                           std::byte* out) const {
  for (std::int64_t task = 0; task < tasks(); ++task) run(task, table, source, out);
}

void ElementMover::run_all(const std::byte* source, std::byte* out) const {
  run_all(own_table(), source, out);
}

std::int64_t ElementMover::elements_by_blocks() const {
  std::int64_t elements = 0;
  for (const Band& band : bands_) {
    const Area& area = areas_[band.area];
    if (area.plan) elements += area.block.n * area.block.k * static_cast<std::int64_t>(band.count);
  }
  return elements;
}

void move_elements(const ElementMover& mover, const ExpertBytes& share,
                   std::span<const std::byte> source, std::span<std::byte> out,
                   Executor& executor) {
  const std::int64_t tasks = mover.tasks();
  parallel_ranges(executor, share.experts * tasks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t expert = i / tasks;
      mover.run(i % tasks, source.data() + expert * share.source_bytes,
                out.data() + expert * share.out_bytes);
    }
  });
}

}  // namespace fewbit
