// SPDX-License-Identifier: Apache-2.0
#include "backends/cuda_moe/grouped_plan.hpp"

#include <algorithm>
#include <array>
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
  const std::array<std::pair<const char*, std::int64_t>, 2> sizes{
      {{"hidden_size", shape.hidden_size}, {"intermediate_size", shape.intermediate_size}}};
  for (const auto& [name, size] : sizes) {
    if (size < grouped_step || size % grouped_step != 0 || size > (1 << 20)) {
      return refuse(name, size, "a multiple of " + std::to_string(grouped_step) + " up to 1048576");
    }
  }
  if (!shape.swiglu) {
    return Error{ErrorCode::unsupported, "an activation other than silu and swigluoai",
                 "cuda_grouped"};
  }
  return {};
}

// Routes an expert from which on the grouped kernels were the faster ones, for layers of about that
// hidden_size. At 7168 the streaming kernel's shared memory holds only its narrowest form.
std::int64_t from_routes(CellKind kind, std::int64_t hidden_size) {
  // Both read about as fast, and the grouped kernels read weights once.
  if (kind == CellKind::f8) return 5;
  if (hidden_size <= 2400) return 15;
  if (hidden_size <= 3400) return 16;
  return hidden_size <= 5400 ? 18 : 10;
}

}  // namespace

// Narrower products for fewer tokens an expert.
int grouped_item_width(const StreamShape& shape) {
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
  plan.experts = static_cast<int>(shape.experts);
  plan.hidden = static_cast<int>(shape.hidden_size);
  plan.inner = static_cast<int>(shape.intermediate_size);
  plan.units1 = plan.inner / 16;
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
  plan.x_at = take(2 * rows * plan.hidden);
  plan.activated_at = take(2 * rows * plan.inner);
  plan.products_at = take(4 * rows * plan.hidden);
  plan.scratch_bytes = at;
  return plan;
}

bool runs_grouped(const StreamShape& shape) {
  if (!check(shape)) return false;
  std::int64_t from = from_routes(shape.kind, shape.hidden_size);
  // The streaming kernel has only its narrowest form for these.
  if (!shape.plain) from = std::min<std::int64_t>(from, 10);
  return shape.tokens * shape.top_k >= from * shape.experts;
}

}  // namespace fewbit::cuda
