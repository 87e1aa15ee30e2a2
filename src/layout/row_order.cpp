// SPDX-License-Identifier: Apache-2.0
#include "layout/row_order.hpp"

#include <algorithm>
#include <cassert>
#include <string>

#include "core/ascii.hpp"

namespace fewbit {

Result<W13Order> w13_order_from_name(std::string_view name) {
  const std::string lower = lower_ascii(name);
  if (lower == "w13" || lower == "up_gate") return W13Order::up_gate;
  if (lower == "w31" || lower == "gate_up") return W13Order::gate_up;
  return Error{ErrorCode::invalid_argument,
               "w13 order '" + std::string(name) +
                   "', expected 'w13' or 'up_gate' (up rows first), 'w31' or 'gate_up' (gate rows "
                   "first)",
               ""};
}

void reorder_rows(RowRotation rows, std::span<const std::byte> in, std::span<std::byte> out) {
  assert(rows.rows > 0 && in.size() == out.size());
  const std::size_t row_bytes = in.size() / static_cast<std::size_t>(rows.rows);
  assert(row_bytes * static_cast<std::size_t>(rows.rows) == in.size());
  // A rotation is two blocks that change places.
  const std::size_t tail = static_cast<std::size_t>(rows.shift) * row_bytes;
  std::copy(in.begin() + static_cast<std::ptrdiff_t>(tail), in.end(), out.begin());
  std::copy_n(in.begin(), tail, out.end() - static_cast<std::ptrdiff_t>(tail));
}

}  // namespace fewbit
