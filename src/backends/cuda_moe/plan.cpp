// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/checked.hpp"
#include "layout/cuda_f4_cells.hpp"

namespace fewbit::cuda {
namespace {

constexpr int max_routes = 8192;
constexpr std::int64_t max_experts = 1024;
// Of shared memory, for barriers and the like.
constexpr std::int64_t fixed_bytes = 4096;

static_assert(nvfp4_cells.cell_bytes() == CudaF4Cells<16>::cell_bytes);
static_assert(mxfp4_cells.cell_bytes() == CudaF4Cells<32>::cell_bytes);

// Units of a matrix whose halves have that many rows.
std::int64_t units_of(std::int64_t rows) { return ceil_div(rows, std::int64_t{16}); }

StreamMatrix matrix(const CellFormat& format, Dims half, int split, int most_piece_cells) {
  StreamMatrix m;
  m.rows_half = static_cast<int>(half.n);
  m.depth = static_cast<int>(half.k);
  m.units = static_cast<int>(units_of(half.n));
  // Warps share whole runs of cells that have scales in common.
  const int run = format.cell_multiple();
  const int runs = static_cast<int>(ceil_div(half.k, std::int64_t{32} * run));
  m.cells = runs * run;
  m.split = split;
  while (m.split > runs) m.split /= 2;
  m.warp_cells = ceil_div(runs, m.split) * run;
  m.piece_cells = std::min(m.warp_cells, most_piece_cells);
  m.cell_bytes = format.cell_bytes();
  m.expert_bytes = static_cast<long long>(m.units) * m.cells * m.cell_bytes;
  return m;
}

// Where sharing a unit between warps was measured: the fastest split on an H200 for matrices of
// that many cells of k and units a thread block. Fewer units leave warps idle at the end of a run;
// every sharing warp adds a little work.
struct Measured {
  double cells;
  double units_a_block;
  int split;
};
constexpr std::array<Measured, 22> measured_fc1{
    {{8, 0.25, 2},  {8, 10, 1},   {64, 2.9, 8},  {64, 5.6, 4}, {64, 10.5, 1}, {64, 20, 1},
     {64, 48, 1},   {90, 5.5, 2}, {90, 10.8, 2}, {90, 21, 2},  {90, 40, 2},   {90, 70, 1},
     {128, 5.3, 4}, {128, 10, 4}, {128, 19, 2},  {128, 34, 2}, {128, 55, 1},  {224, 7.8, 4},
     {224, 15, 4},  {224, 30, 4}, {224, 55, 2},  {224, 98, 1}}};
constexpr std::array<Measured, 15> measured_fc2{{{4, 0.25, 1},
                                                 {24, 3.9, 4},
                                                 {24, 7.5, 2},
                                                 {24, 14, 1},
                                                 {24, 30, 1},
                                                 {24, 60, 1},
                                                 {44, 7.8, 1},
                                                 {64, 13.6, 2},
                                                 {64, 27, 1},
                                                 {64, 98, 1},
                                                 {90, 2.7, 4},
                                                 {90, 5.4, 4},
                                                 {90, 10.5, 4},
                                                 {90, 20, 4},
                                                 {90, 35, 1}}};

// The split of the nearest measurement, by ratios; k matters more.
template <std::size_t size>
int split_of(const std::array<Measured, size>& table, double cells, double units_a_block) {
  const auto distance = [&](const Measured& m) {
    return std::abs(std::log(cells / m.cells)) +
           std::abs(std::log(units_a_block / m.units_a_block));
  };
  const auto nearest = std::min_element(
      table.begin(), table.end(),
      [&](const Measured& a, const Measured& b) { return distance(a) < distance(b); });
  return nearest->split;
}

// Experts that uniform routing is expected to hit.
double expected_experts(const StreamShape& shape) {
  const auto experts = static_cast<double>(shape.experts);
  const double missed = std::pow(1 - 1 / experts, static_cast<double>(shape.tokens * shape.top_k));
  return std::max(1.0, experts * (1 - missed));
}

// The split of a dense matrix: the one whose warps have the fewest cells to read, one after the
// other. A block has few units or one.
int dense_split(const StreamShape& shape, std::int64_t tiles, int blocks) {
  const std::int64_t items = ceil_div(shape.tokens, 8 * tiles);
  const std::int64_t units =
      ceil_div(units_of(shape.hidden_size / 2) * items, std::int64_t{std::max(blocks, 1)});
  const auto parts = [&](std::int64_t split) {  // sixteenths of a unit
    return ceil_div(units * split, std::int64_t{stream_warps}) * (stream_warps / split);
  };
  int best = 1;
  for (int split = 2; split <= stream_warps; split *= 2) {
    if (parts(split) < parts(best)) best = split;
  }
  return best;
}

// Up to 4 tokens an expert a second reading of the few that have more than 8 costs less than wider
// tiles for all.
int tiles_for(const CellFormat& format, const StreamShape& shape) {
  if (!shape.plain) return 1;
  if (2 * shape.tokens * shape.top_k <= 9 * shape.experts || shape.tokens <= 8) return 1;
  return format.most_token_tiles();
}

Result<void> check_shape(const StreamShape& shape) {
  const auto refuse = [](const char* what, std::int64_t has, const std::string& needs) {
    return Error{ErrorCode::unsupported,
                 std::string(what) + " " + std::to_string(has) + ", expected " + needs,
                 "cuda_stream"};
  };
  if (shape.tokens < 1) return refuse("tokens", shape.tokens, "at least 1");
  if (shape.experts < 1 || shape.experts > max_experts) {
    return refuse("experts", shape.experts, "1 to " + std::to_string(max_experts));
  }
  if (shape.top_k < 1 || shape.top_k > max_routes) {
    return refuse("top_k", shape.top_k, "1 to " + std::to_string(max_routes));
  }
  if (shape.tokens > max_routes / shape.top_k) {
    return refuse("tokens", shape.tokens,
                  "at most " + std::to_string(max_routes / shape.top_k) + " with top_k " +
                      std::to_string(shape.top_k));
  }
  for (const auto& [name, size] : named_sizes(shape)) {
    if (size < 16 || size % 16 != 0 || size > (1 << 20)) {
      return refuse(name, size, "a multiple of 16 from 16 to 1048576");
    }
  }
  return {};
}

// Places everything in shared memory, with room for the activations of `items` whole items; the
// slots of a ring that are left, 0 when there is no room at all.
int place_shared(StreamPlan& plan, std::int64_t available, int items) {
  std::int64_t at = 0;
  const auto take = [&at](std::int64_t bytes) {
    const std::int64_t begin = at;
    at = ceil_div(at + bytes, std::int64_t{128}) * 128;
    return static_cast<int>(begin);
  };
  const std::int64_t cells = std::max(plan.fc1.cells, plan.fc2.cells);
  const std::int64_t counts = std::int64_t{2} * stream_warps * plan.experts;
  const bool sums = plan.fc1.split > 1 || plan.fc2.split > 1;
  plan.items_at = take(std::int64_t{16} * plan.max_items);
  plan.routes_at = take(std::int64_t{8} * plan.tokens * plan.top_k);
  plan.scales_at = take(std::int64_t{12} * plan.experts);
  plan.tokens_bytes = static_cast<int>(cells * 512 * plan.token_tiles * items);
  plan.tokens_at = take(plan.tokens_bytes);
  plan.partials_at = take(sums ? std::int64_t{2} * stream_warps * plan.token_tiles * 1024 : 0);
  plan.rings_at = take(0);
  plan.counts_at = plan.rings_at;
  const std::int64_t left = available - fixed_bytes - at;
  const std::int64_t slots = left / (std::int64_t{stream_warps} * plan.slot_bytes);
  if (slots < 1 || left < counts) return 0;
  plan.slots = static_cast<int>(std::min<std::int64_t>(slots, stream_max_slots));
  const std::int64_t rings = std::int64_t{stream_warps} * plan.slots * plan.slot_bytes;
  plan.shared_bytes = static_cast<int>(at + std::max(rings, counts));
  return plan.slots;
}

// The first of these ways that leaves enough of a ring: room for two items at once, so that a block
// does not stop between them, and whole pieces; down to pieces of one cell.
bool fit(StreamPlan& plan, const CellFormat& format, const StreamShape& shape,
         const StreamCard& card, int split1, int split2) {
  struct Way {
    int piece_cells, items, fewest_slots;
  };
  constexpr std::array<Way, 5> ways{
      {{stream_piece_cells, 2, 2}, {stream_piece_cells, 1, 2}, {3, 1, 2}, {2, 1, 2}, {1, 1, 2}}};
  const Dims half1 = {.n = shape.rows1(), .k = shape.hidden_size};
  const Dims half2 = {.n = shape.hidden_size / 2, .k = shape.intermediate_size};
  for (const Way& way : ways) {
    // Wider tiles aren't worth short pieces.
    if (plan.token_tiles > 1 && way.piece_cells < stream_piece_cells) return false;
    if (way.piece_cells % format.cell_multiple() != 0) return false;
    if (!shape.dense) plan.fc1 = matrix(format, half1, split1, way.piece_cells);
    plan.fc2 = matrix(format, half2, split2, way.piece_cells);
    plan.slot_bytes = std::max(plan.fc1.piece_cells, plan.fc2.piece_cells) * format.cell_bytes();
    const auto available = static_cast<std::int64_t>(card.shared_memory_bytes);
    if (place_shared(plan, available, way.items) >= way.fewest_slots) return true;
  }
  return false;
}

}  // namespace

StreamShape dense_shape(CellKind kind, std::int64_t tokens, Dims matrix) {
  StreamShape shape{.tokens = tokens,
                    .top_k = 1,
                    .experts = 1,
                    .hidden_size = matrix.n,
                    .intermediate_size = matrix.k};
  shape.kind = kind;
  shape.dense = true;
  return shape;
}

std::array<std::pair<const char*, std::int64_t>, 2> named_sizes(const StreamShape& shape) {
  return {{{shape.dense ? "n" : "hidden_size", shape.hidden_size},
           {shape.dense ? "k" : "intermediate_size", shape.intermediate_size}}};
}

StreamCard card_of(const DeviceInfo& device) {
  return {.sm_count = device.sm_count, .shared_memory_bytes = device.shared_memory_bytes};
}

Result<StreamPlan> plan_stream(const CellFormat& format, const StreamShape& shape,
                               const StreamCard& card, const StreamChoice& choice) {
  if (Result<void> checked = check_shape(shape); !checked) return checked.error();
  StreamPlan plan;
  plan.tokens = static_cast<int>(shape.tokens);
  plan.hidden = static_cast<int>(shape.hidden_size);
  plan.top_k = static_cast<int>(shape.top_k);
  plan.x_routes = shape.ordered ? 1 : plan.top_k;
  plan.experts = static_cast<int>(shape.experts);
  plan.blocks = card.sm_count;
  const std::int64_t routes = shape.tokens * shape.top_k;
  const double experts = expected_experts(shape);
  const auto units_a_block = [&](std::int64_t rows) {
    return experts * static_cast<double>(units_of(rows)) / std::max(card.sm_count, 1);
  };
  const auto cells = [](std::int64_t depth) { return static_cast<double>(depth) / 32; };
  const int split1 = choice.split1 != 0 ? choice.split1
                     : shape.dense      ? 1
                                        : split_of(measured_fc1, cells(shape.hidden_size),
                                                   units_a_block(shape.rows1()));
  const auto split2_of = [&](int tiles) {
    if (choice.split2 != 0) return choice.split2;
    if (shape.dense) return dense_split(shape, tiles, card.sm_count);
    return split_of(measured_fc2, cells(shape.intermediate_size),
                    units_a_block(shape.hidden_size / 2));
  };
  for (int tiles = choice.token_tiles != 0 ? std::min(choice.token_tiles, format.most_token_tiles())
                                           : tiles_for(format, shape);
       tiles >= 1; tiles /= 2) {
    plan.token_tiles = tiles;
    const std::int64_t most = std::min(routes, shape.experts + routes / (8 * tiles));
    plan.max_items = static_cast<int>(most);
    // The kernel divides the work between blocks in 32 bits.
    const std::int64_t units = std::max(units_of(shape.rows1()), units_of(shape.hidden_size / 2));
    if (most * units * (plan.blocks + 1) >= std::int64_t{1} << 32) continue;
    plan.counters = plan.max_items + 2;
    if (fit(plan, format, shape, card, split1, split2_of(tiles))) return plan;
    // Their pieces are long: without the room for sums.
    if (tiles == 1 && format.scaled_sums() && fit(plan, format, shape, card, 1, 1)) {
      return plan;
    }
  }
  const auto sizes = named_sizes(shape);
  return Error{ErrorCode::unsupported,
               std::string(sizes[0].first) + " " + std::to_string(sizes[0].second) + " and " +
                   sizes[1].first + " " + std::to_string(sizes[1].second) +
                   " need more than the shared memory of one thread block, " +
                   std::to_string(card.shared_memory_bytes) + " bytes",
               "cuda_stream"};
}

Result<StreamPlan> plan_stream_part(const CellFormat& format, StreamShape shape,
                                    const StreamCard& card) {
  const std::int64_t most = std::max<std::int64_t>(1, max_routes / shape.top_k);
  for (shape.tokens = std::min(shape.tokens, most);; shape.tokens = (shape.tokens + 1) / 2) {
    auto plan = plan_stream(format, shape, card);
    if (plan || shape.tokens <= 1) return plan;
  }
}

}  // namespace fewbit::cuda
