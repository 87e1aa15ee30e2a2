// SPDX-License-Identifier: Apache-2.0
#include "layout/element_mover.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <map>
#include <utility>

#include "layout/parallel_ranges.hpp"

namespace fewbit {
namespace {

// Tasks share no byte: no layout packs columns n into one that are 64 or more apart, or rows k. And
// neighbouring blocks of a task are done together, so that lines of 64 bytes along n add up.
constexpr std::int64_t task_columns = 512;
constexpr std::int64_t task_rows = 64;
constexpr std::int64_t task_bytes = 1 << 16;  // of rows, at least
constexpr std::size_t walk_blocks = 4;        // along k, before the next columns' turn

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

Place place_at(std::int64_t bit_address) {
  return {.byte = bit_address / 8, .bit = static_cast<int>(bit_address % 8)};
}

std::uint64_t mask_of(int bits) { return (std::uint64_t{2} << (bits - 1)) - 1; }

std::uint64_t read_element(const std::byte* from, Place place, int bits) {
  std::uint64_t value = 0;
  for (int i = 0; i < std::max(bits / 8, 1); ++i) {
    value |= std::to_integer<std::uint64_t>(from[place.byte + i]) << (8 * i);
  }
  return value >> place.bit & mask_of(bits);
}

void write_element(std::byte* to, Place place, int bits, std::uint64_t value) {
  if (bits < 8) {
    const auto kept =
        std::to_integer<std::uint64_t>(to[place.byte]) & ~(mask_of(bits) << place.bit);
    to[place.byte] = static_cast<std::byte>(kept | value << place.bit);
    return;
  }
  for (int i = 0; i < bits / 8; ++i) to[place.byte + i] = static_cast<std::byte>(value >> (8 * i));
}

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
            .areas = {}};
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
  const std::int64_t window = std::max(task_columns, range.block.n);
  for (std::size_t n = 0, end = 0; n < n_end; n = end) {
    end = end_of_window(grid.n.segments, n, window);
    add_task(grid, {.first_n = n, .end_n = end, .first_k = 0, .end_k = k_end});
  }
}

// Some blocks along k, then the next columns; by rows where those are what the source has.
void ElementMover::add_task(Grid& grid, const Part& part) {
  tasks_.push_back(
      {.first_n = grid.n.segments[part.first_n].first, .first_band = bands_.size(), .bands = 0});
  const bool by_rows = step_of(grid.n.source) < step_of(grid.k.source);
  const std::size_t walk = by_rows ? 1 : walk_blocks;
  for (std::size_t first = part.first_k; first < part.end_k; first += walk) {
    const std::size_t end = std::min(first + walk, part.end_k);
    for (std::size_t n = part.first_n; n < part.end_n; ++n) {
      for (std::size_t k = first; k < end; ++k) add_block(grid, n, k);
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
  Area area{.block = block, .plan = {}, .ordered = {}};
  if (!whole_bytes) return area;
  area.plan = plan_block(block_places(map_.source, first, block),
                         block_places(map_.out, first, block), map_.bits, mover_);
  if (area.plan && !map_.rows.starts.empty()) {
    area.ordered.emplace(map_.rows, moves_of(*area.plan), mover_);
  }
  return area;
}

BlockMoves ElementMover::moves_of(const BlockPlan& plan) const {
  BlockMoves moves = plan.moves();
  if (map_.table != nullptr) {
    (map_.bits == 4 ? moves.nibbles : moves.bytes) = map_.table;
    moves.register_from = nullptr;
  }
  moves.first_byte = map_.present.first;
  moves.last_byte = map_.present.last;
  moves.stream = !map_.read_soon;
  return moves;
}

// Places are sums of what n and what k give: found once for some k, then for each n.
void ElementMover::move_one_by_one(Dims block, Element first, const std::byte* source,
                                   std::byte* out) const {
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
        const std::uint64_t value = read_element(source, from, map_.bits);
        write_element(out, place_at(to_n + to_k[i]), map_.bits,
                      map_.table != nullptr ? map_.table[value] : value);
      }
    }
  }
}

void ElementMover::run_band(const Band& band, const std::byte* source, std::byte* out) const {
  const Area& area = areas_[band.area];
  const auto blocks = std::span(blocks_).subspan(band.first, band.count);
  if (!area.plan) {
    for (const BlockCopy& at : blocks) {
      move_one_by_one(area.block, {.n = at.from, .k = at.to}, source, out);
    }
    return;
  }
  const BlockMoves moves = moves_of(*area.plan);
  const BlockRun all{.blocks = blocks.data(),
                     .count = std::ssize(blocks),
                     .own_lines = false,
                     .source = as_u8(source),
                     .out = reinterpret_cast<std::uint8_t*>(out)};
  area.ordered ? area.ordered->move(moves, all) : mover_.move(moves, all);
}

void ElementMover::run(std::int64_t task, const std::byte* source, std::byte* out) const {
  const Task& mine = tasks_[static_cast<std::size_t>(task)];
  for (const Band& band : std::span(bands_).subspan(mine.first_band, mine.bands)) {
    run_band(band, source, out);
  }
  mover_.fence();
}

std::int64_t ElementMover::first_n(std::int64_t task) const {
  return tasks_[static_cast<std::size_t>(task)].first_n;
}

void ElementMover::run_all(const std::byte* source, std::byte* out) const {
  for (std::int64_t task = 0; task < tasks(); ++task) run(task, source, out);
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
