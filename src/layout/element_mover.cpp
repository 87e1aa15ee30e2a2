// SPDX-License-Identifier: Apache-2.0
#include "layout/element_mover.hpp"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

#include "layout/parallel_ranges.hpp"

namespace fewbit {
namespace {

// Strips of one task share bytes at most among themselves: no layout packs columns into a byte that
// are 64 or more apart.
// And neighbouring strips of a task are done together, so that lines of 64 bytes along n add up.
constexpr std::int64_t task_columns = 256;
constexpr std::int64_t walk_blocks = 4;  // along k, before the next strip's turn

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

std::int64_t bit_address(Place place) { return place.byte * 8 + place.bit; }

using PlaceOf = std::function<Place(std::int64_t n, std::int64_t k)>;

BlockPlaces block_places(const PlaceOf& place, Element first, Dims block) {
  BlockPlaces places;
  const std::int64_t base = bit_address(place(first.n, first.k));
  for (std::int64_t n = 0; n < block.n; ++n) {
    places.n.push_back(bit_address(place(first.n + n, first.k)) - base);
  }
  for (std::int64_t k = 0; k < block.k; ++k) {
    places.k.push_back(bit_address(place(first.n, first.k + k)) - base);
  }
  return places;
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

ElementMover::ElementMover(ElementMap map, IsaLevel isa)
    : map_(std::move(map)), mover_(block_mover(isa)) {
  for (const ElementRange& range : map_.ranges) add_range(range);
}

void ElementMover::add_range(const ElementRange& range) {
  std::map<std::int64_t, std::size_t> row_of_height;
  std::int64_t task_end = -1;
  const auto segments = aligned_segments(range.first.n, range.count.n, range.block.n);
  for (const Segment& segment : segments) {
    const auto [found, added] = row_of_height.try_emplace(segment.size, rows_.size());
    if (added) {
      rows_.push_back(make_row(range, {.n = segment.first, .k = range.first.k}, segment.size));
    }
    if (segment.first >= task_end) {
      tasks_.push_back({.first_strip = strips_.size(), .strips = 0});
      const std::int64_t columns = std::max(task_columns, range.block.n);
      task_end = segment.first / columns * columns + columns;
    }
    strips_.push_back({.row = found->second, .first_n = segment.first});
    ++tasks_.back().strips;
  }
}

ElementMover::Row ElementMover::make_row(const ElementRange& range, Element first,
                                         std::int64_t height) const {
  Row row{.first_k = range.first.k, .runs = {}};
  const auto segments = aligned_segments(range.first.k, range.count.k, range.block.k);
  for (std::size_t i = 0; i < segments.size();) {
    std::size_t end = i + 1;
    while (end < segments.size() && segments[end].size == segments[i].size) ++end;
    row.runs.push_back(make_run({.n = first.n, .k = segments[i].first},
                                {.n = height, .k = segments[i].size},
                                static_cast<std::int64_t>(end - i), first.k));
    i = end;
  }
  return row;
}

ElementMover::Run ElementMover::make_run(Element first, Dims block, std::int64_t count,
                                         std::int64_t range_k) const {
  Run run{.plan = {}, .blocks = {}, .first_k = first.k, .block = block};
  const Place source = map_.source(first.n, range_k);
  const Place out = map_.out(first.n, range_k);
  bool whole_bytes = source.bit == 0 && out.bit == 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Place from = map_.source(first.n, first.k + i * block.k);
    const Place to = map_.out(first.n, first.k + i * block.k);
    whole_bytes = whole_bytes && from.bit == 0 && to.bit == 0;
    run.blocks.push_back({.from = from.byte - source.byte, .to = to.byte - out.byte});
  }
  if (!whole_bytes) return run;
  const BlockPlaces from = block_places(map_.source, first, block);
  const BlockPlaces to = block_places(map_.out, first, block);
  run.plan = plan_block(from, to, map_.bits, mover_.register_log2);
  return run;
}

void ElementMover::move_one_by_one(const Run& run, std::int64_t first_n, const std::byte* source,
                                   std::byte* out) const {
  const std::int64_t end_k = run.first_k + std::ssize(run.blocks) * run.block.k;
  for (std::int64_t n = first_n; n < first_n + run.block.n; ++n) {
    for (std::int64_t k = run.first_k; k < end_k; ++k) {
      const std::uint64_t value = read_element(source, map_.source(n, k), map_.bits);
      write_element(out, map_.out(n, k), map_.bits,
                    map_.table != nullptr ? map_.table[value] : value);
    }
  }
}

void ElementMover::run_blocks(const Strip& strip, const Run& run, std::int64_t first,
                              const std::byte* source, std::byte* out) const {
  const std::int64_t row_k = rows_[strip.row].first_k;
  BlockMoves moves = run.plan->moves();
  (map_.bits == 4 ? moves.nibbles : moves.bytes) = map_.table;
  moves.first_byte = map_.present.first;
  moves.last_byte = map_.present.last;
  const std::byte* const from = source + map_.source(strip.first_n, row_k).byte;
  std::byte* const to = out + map_.out(strip.first_n, row_k).byte;
  mover_.move(moves, {.blocks = run.blocks.data() + first,
                      .count = std::min(walk_blocks, std::ssize(run.blocks) - first),
                      .source = as_u8(from),
                      .out = reinterpret_cast<std::uint8_t*>(to)});
}

// Strips of one row, side by side.
void ElementMover::run_strips(std::span<const Strip> strips, const std::byte* source,
                              std::byte* out) const {
  for (const Run& run : rows_[strips.front().row].runs) {
    if (!run.plan) {
      for (const Strip& strip : strips) move_one_by_one(run, strip.first_n, source, out);
      continue;
    }
    for (std::int64_t first = 0; first < std::ssize(run.blocks); first += walk_blocks) {
      for (const Strip& strip : strips) run_blocks(strip, run, first, source, out);
    }
  }
}

void ElementMover::run(std::int64_t task, const std::byte* source, std::byte* out) const {
  const Task& mine = tasks_[static_cast<std::size_t>(task)];
  auto strips = std::span(strips_).subspan(mine.first_strip, mine.strips);
  while (!strips.empty()) {
    std::size_t alike = 1;
    while (alike < strips.size() && strips[alike].row == strips.front().row) ++alike;
    run_strips(strips.first(alike), source, out);
    strips = strips.subspan(alike);
  }
  mover_.fence();
}

std::int64_t ElementMover::first_n(std::int64_t task) const {
  return strips_[tasks_[static_cast<std::size_t>(task)].first_strip].first_n;
}

void ElementMover::run_all(const std::byte* source, std::byte* out) const {
  for (std::int64_t task = 0; task < tasks(); ++task) run(task, source, out);
}

std::int64_t ElementMover::elements_by_blocks() const {
  std::int64_t elements = 0;
  for (const Strip& strip : strips_) {
    for (const Run& run : rows_[strip.row].runs) {
      if (run.plan) elements += run.block.n * run.block.k * std::ssize(run.blocks);
    }
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
