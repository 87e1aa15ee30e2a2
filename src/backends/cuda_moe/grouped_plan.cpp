// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/grouped_plan.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "core/checked.hpp"

namespace fewbit::cuda {
namespace {

// Rows are counted in 32 bits.
constexpr std::int64_t max_routes = std::int64_t{1} << 24;

Error refuse(const char* what, std::int64_t has, const std::string& needs) {
  return Error{ErrorCode::unsupported,
               std::string(what) + " " + std::to_string(has) + ", expected " + needs,
               "cuda_grouped"};
}

Result<void> check(const StreamShape& shape) {
  if (shape.tokens < 1) return refuse("tokens", shape.tokens, "at least 1");
  if (shape.experts < 1 || shape.experts > grouped_max_experts) {
    return refuse("experts", shape.experts, "1 to " + std::to_string(grouped_max_experts));
  }
  if (shape.top_k < 1 || shape.tokens > max_routes / shape.top_k) {
    return refuse("tokens", shape.tokens,
                  "at most " + std::to_string(max_routes) + " divided by top_k " +
                      std::to_string(shape.top_k));
  }
  // Rows of down are no k of a dense layer: two halves of whole units.
  const auto sizes = named_sizes(shape);
  const std::int64_t multiples[] = {shape.dense ? 32 : grouped_step, grouped_step};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto [name, size] = sizes[i];
    if (size < multiples[i] || size % multiples[i] != 0 || size > (1 << 20)) {
      return refuse(name, size, "a multiple of " + std::to_string(multiples[i]) + " up to 1048576");
    }
  }
  if (!shape.swiglu) {
    return Error{ErrorCode::unsupported, "an activation other than silu and swigluoai",
                 "cuda_grouped"};
  }
  return {};
}

// Codes of at most four bits, whose scales are multiplied into sums.
constexpr bool has_low_codes(CellKind kind) {
  return has_int_cells(kind) && kind != CellKind::int8;
}

// Routes an expert from which on the grouped kernels were the faster ones, for layers of about that
// hidden_size. At 7168 the streaming kernel's shared memory holds only its narrowest form.
std::int64_t from_routes(CellKind kind, std::int64_t hidden_size) {
  // Both read about as fast, and the grouped kernels read weights once.
  if (!has_low_codes(kind) && scaled_sums(kind)) return 5;
  if (hidden_size <= 2400) return 15;
  if (hidden_size <= 3400) return 16;
  return hidden_size <= 5400 ? 18 : 10;
}

// Of a dense layer. Items of 32, 64 and 128 rows: how many rows of weights share a tile with them
// (moe_f4_grouped.cuh), and tenths of a nanosecond for one k of a tile, as measured on an H200.
struct DenseWidth {
  int item_rows, weight_rows, k_time;
};
constexpr std::array<DenseWidth, 3> exact_weights{
    {{32, 512, 175}, {64, 256, 123}, {128, 256, 153}}};
constexpr std::array<DenseWidth, 2> int4_weights{{{32, 384, 150}, {64, 256, 131}}};
constexpr std::array<DenseWidth, 2> f8_weights{{{32, 256, 120}, {64, 256, 131}}};

std::span<const DenseWidth> dense_widths(CellKind kind) {
  if (!scaled_sums(kind)) return exact_weights;
  if (has_low_codes(kind)) return int4_weights;
  return f8_weights;
}

// The width with which the tiles, a multiprocessor of the measured card each, are done first.
int dense_item_width(const StreamShape& shape) {
  constexpr std::int64_t multiprocessors = 132;
  const auto time = [&](const DenseWidth& w) {
    const std::int64_t tiles = ceil_div(shape.tokens, std::int64_t{w.item_rows}) *
                               ceil_div(shape.hidden_size, std::int64_t{w.weight_rows});
    return ceil_div(tiles, multiprocessors) * w.k_time;
  };
  const auto widths = dense_widths(shape.kind);
  return std::min_element(
             widths.begin(), widths.end(),
             [&](const DenseWidth& a, const DenseWidth& b) { return time(a) < time(b); })
      ->item_rows;
}

// Results of a dense call from which on the grouped kernels were the faster ones, for matrices of 1
// to 100 million weights.
std::int64_t from_results(CellKind kind) {
  return !scaled_sums(kind) || has_low_codes(kind) ? 560'000 : 280'000;
}

}  // namespace

// Narrower products for fewer tokens an expert.
int grouped_item_width(const StreamShape& shape) {
  if (shape.dense) return dense_item_width(shape);
  const std::int64_t routes = shape.tokens * shape.top_k;
  if (routes < 20 * shape.experts) return 32;
  return routes < 40 * shape.experts || scaled_sums(shape.kind) ? 64 : grouped_item_rows;
}

Result<GroupedPlan> plan_grouped(const StreamShape& shape, const StreamCard& card, int item_rows) {
  FEWBIT_TRY(check(shape));
  const std::int64_t routes = shape.tokens * shape.top_k;
  const std::int64_t hit = std::min(routes, shape.experts);
  GroupedPlan plan;
  plan.tokens = static_cast<int>(shape.tokens);
  plan.top_k = static_cast<int>(shape.top_k);
  plan.x_routes = shape.ordered ? 1 : plan.top_k;
  plan.experts = static_cast<int>(shape.experts);
  plan.hidden = static_cast<int>(shape.hidden_size);
  plan.inner = static_cast<int>(shape.intermediate_size);
  plan.gathered = shape.dense ? plan.inner : plan.hidden;
  plan.units1 = shape.dense ? 0 : plan.inner / 16;
  plan.units2 = plan.hidden / 2 / 16;
  plan.blocks = card.sm_count;
  plan.item_rows = item_rows != 0 ? item_rows : grouped_item_width(shape);
  // Every expert that is hit has one item that isn't full, and pads less than 8 rows.
  plan.max_items = static_cast<int>(hit + routes / plan.item_rows);
  const std::int64_t rows = routes + 7 * hit;
  plan.max_rows = static_cast<int>(rows);
  std::int64_t at = 0;
  const auto take = [&at](std::int64_t bytes) {
    const std::int64_t begin = at;
    at += ceil_div(bytes, std::int64_t{1024}) * 1024;
    return begin;
  };
  plan.items_count_at = take(4);
  plan.experts_at = take(std::int64_t{16} * plan.experts);
  plan.items_at = take(std::int64_t{16} * plan.max_items);
  plan.row_weight_at = take(4 * rows);
  plan.route_row_at = take(4 * routes);
  plan.x_at = take(2 * rows * plan.gathered);
  plan.activated_at = shape.dense ? plan.x_at : take(2 * rows * plan.inner);
  plan.products_at = take(4 * rows * plan.hidden);
  plan.scratch_bytes = at;
  return plan;
}

bool runs_grouped(const StreamShape& shape) {
  if (!check(shape)) return false;
  if (shape.dense) return shape.tokens * shape.hidden_size >= from_results(shape.kind);
  std::int64_t from = from_routes(shape.kind, shape.hidden_size);
  // The streaming kernel has only its narrowest form for these.
  if (!shape.plain) from = std::min<std::int64_t>(from, 10);
  return shape.tokens * shape.top_k >= from * shape.experts;
}

}  // namespace fewbit::cuda
